"""Reads what a plan's script brought back, and ranks its candidates as a local optimize ranks its own.

    results/board/...       copies of the board's files: which board, which release, which power mode
            files.sha256    the content of every file that was used, noted before the first run
            NAME/           one run: log, code, mode_before, mode_after, began, and what trtexec exported
            plan.json       the plan itself

What was measured on another board, in another power mode, by another command or with other files than planned is
refused: its figures would carry the plan's names. A run that is not there, or that failed, is said to be so; figures
that nothing on the board read (power, heat, memory) are absent.
"""

from __future__ import annotations

import json
import re
import tarfile
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from datetime import datetime, timezone
from pathlib import Path, PurePosixPath
from typing import Any

import numpy as np
from numpy.typing import NDArray

from edgescope.analysis.cells.objective import wanted
from edgescope.bench.outcome import concluded, guarded
from edgescope.bench.parts import HERE
from edgescope.bench.programs import OwnLoop
from edgescope.bench.watch import Watch
from edgescope.errors import DeviceError, EdgescopeError, Message, UsageError
from edgescope.models.base import Batch, Model
from edgescope.process import scratch_folder
from edgescope.records import GateOutcome, Json, Machine, Result, Trial, Trust, Verdict, Window, digest
from edgescope.runner.setup import Setup, Stored, store_of
from edgescope.search.candidates import NotHere
from edgescope.store.results import Store
from edgescope.wings.jetson.lends import boards, software
from edgescope.wings.optimize import board_script, plan
from edgescope.wings.optimize.save import ELSEWHERE
from edgescope.wings.optimize.verb import Optimized, answered
from edgescope.wings.remote.lends import Tree
from edgescope.wings.tensorrt.lends import Apart, command_in, tool, version_in
from edgescope.workloads import gate
from edgescope.workloads.base import Answer, Program
from edgescope.workloads.inference import described

#: Most bytes and files of an archive; each query of trtexec's export takes some 300 bytes.
MOST_BYTES, MOST_FILES = 4 << 30, 100_000
MOST_TEXT = 64 << 20
_MODE = re.compile(r"NV Power Mode:\s*(\S+)|pmode:\s*0*(\d+)")


def returned(
    file: str | Path,
    model: str | Path | None = None,
    *,
    board: str = "",
    objective: str = "",
    constraints: Sequence[str] = (),
    store: Stored = None,
    setup: Setup = Setup(),
) -> Optimized:
    """Return the ranking of what came back, by the plan's objective and constraints unless others are given.

    `file`: results.tgz, or the folder that it holds. With `model` or `board` it must be of that model, or that board.
    UsageError or DeviceError for what is not the plan's own measurement; results are kept in the store.
    """
    with scratch_folder("results") as name:
        root = unpacked(Path(file), Path(name))
        came = Came.read(root)
        came.check(board, str(model) if model else "")
        goals = wanted(objective or came.plan["objective"], constraints or came.plan["constraints"])
        kept, found = store_of(store), list[Result]()
        machine = came.machine()
        for candidate in came.candidates():
            setup.tell(f"  reading {candidate.trial.label}")
            found += [_kept(result, kept) for result in candidate.results(machine)]
    not_here = [NotHere(**m) for m in came.plan["not_here"]]
    if not found:
        raise DeviceError(
            "E-PLAN-10",
            "no run of the plan came back",
            evidence=f"{Path(file).name} holds the logs of none",
            effect="There is nothing to rank",
            fix="sh run.sh on the board again; it says what it does",
        )
    return answered(tuple(found), goals, tuple(not_here))


def _kept(result: Result, store: Store) -> Result:
    """Store the result unless an earlier reading of the same run is stored; return the one that is."""
    prefix = result.id.rpartition("-")[0]
    known = next(iter(store.names(result.machine, prefix)), None)
    if known is None:
        store.save(result)
        return result
    return replace(result, id=known)


def unpacked(file: Path, into: Path) -> Path:
    """Return the folder of the results; UsageError if the file is none."""
    if file.is_dir():
        return file if (file / plan.PLAN).is_file() else file / "results"
    try:
        with tarfile.open(file, "r:*") as archive:
            left, count = MOST_BYTES, 0
            for member in archive:
                place = PurePosixPath(member.name)
                if not member.isfile() or place.is_absolute() or ".." in place.parts:
                    continue
                left, count = left - member.size, count + 1
                source = archive.extractfile(member)
                if left < 0 or count > MOST_FILES or source is None:
                    raise ValueError(f"it holds more than {MOST_BYTES >> 30} GiB or {MOST_FILES:,} files")
                target = into / place
                target.parent.mkdir(parents=True, exist_ok=True)
                target.write_bytes(source.read())
    except (OSError, EOFError, ValueError, tarfile.TarError) as error:
        raise _unreadable(file, f"{type(error).__name__}: {error}") from error
    return into / "results"


def _unreadable(file: Path, why: str) -> UsageError:
    return UsageError(
        "E-PLAN-6",
        f"{file.name} is not what a plan's run.sh packs",
        evidence=" ".join(why.split())[:200],
        effect="Nothing was read",
        fix="bring back results.tgz as run.sh left it",
    )


@dataclass(frozen=True)
class Came:
    """What came back, and the plan that it answers."""

    root: Path
    plan: Mapping[str, Json]

    @classmethod
    def read(cls, root: Path) -> Came:
        """Return what is in the folder; UsageError E-PLAN-6 if it has no whole plan."""
        try:
            page = json.loads(_text(root / plan.PLAN))
            if page["schema"] != plan.SCHEMA:
                raise ValueError(f"schema {page['schema']}, known is {plan.SCHEMA}")
            whole = {name: value for name, value in page.items() if name not in ("schema", "edgescope", "id")}
            if digest(whole) != page["id"]:
                raise ValueError("plan.json was changed since it was written")
        except (OSError, ValueError, KeyError, TypeError) as error:
            raise _unreadable(root / plan.PLAN, f"{type(error).__name__}: {error}") from error
        return cls(root, page)

    def check(self, board: str, model: str) -> None:
        """Raise an error unless this is the plan's own measurement, on its board, with its files, in one mode."""
        if board and board != self.plan["board"]:
            raise _other("board", f"--for {board}", self.plan["board"], f"--for {self.plan['board']}")
        if model and plan.pinned_model(model) != self.plan["model"]:
            raise _other("model", plan.pinned_model(model), self.plan["model"], "leave MODEL out")
        self._same_board()
        self._same_files()
        self._same_tensorrt()
        self._same_commands()
        self._one_mode()

    def _same_board(self) -> None:
        named = self.machine().stable.get("jetson", {}).get("board")
        wanted_name = boards()[self.plan["board"]].name
        if named != wanted_name:
            here = named if isinstance(named, str) else "no Jetson that is known"
            raise _other("board", here, wanted_name, "run run.sh on that board, or plan for this one")

    def _same_files(self) -> None:
        told = dict(_sums(_text(self.root / "files.sha256")))
        apart = [name for name, sha in self.plan["files"].items() if told.get(name) != sha]
        if apart:
            name = apart[0]
            raise DeviceError(
                "E-PLAN-7",
                f"the board did not use the plan's {name}",
                evidence=f"SHA-256 {str(told.get(name, 'none'))[:12]} there, planned {self.plan['files'][name][:12]}",
                effect="The figures are of another file and would carry this one's name",
                fix="copy the whole folder to the board and run run.sh again",
            )

    def _same_tensorrt(self) -> None:
        found, planned = self.tensorrt(), str(self.plan["tensorrt"])
        if _release(found) == _release(planned):
            return
        held = [
            s.jetpack[-1] for s in software(self.plan["board"]) if _release(s.tensorrt) == _release(found)
        ]
        raise _other(
            "TensorRT",
            found or "no log names a version",
            planned,
            f"edgescope optimize MODEL --for {self.plan['board']} --jetpack {held[-1] if held else 'VERSION'}",
        )

    def _same_commands(self) -> None:
        for name, flags in self.plan["steps"].items():
            log = self.root / name / board_script.LOG
            said = command_in(_text(log)) if log.is_file() else ""
            if said and said != " ".join(flags):
                raise DeviceError(
                    "E-PLAN-8",
                    f"{name} ran another command than was planned",
                    evidence=f"trtexec {said[:200]}",
                    effect="Its figures belong to that command",
                    fix="run.sh as it was written; other settings are planned by --option NAME=VALUE",
                )

    def _one_mode(self) -> None:
        seen = {m: name for name in self.plan["steps"] for m in self._modes(name)}
        asked = str(self.plan["mode"])
        if len(seen) > 1:
            raise _another_mode(", ".join(f"{m} at {name}" for m, name in list(seen.items())[:3]), "one mode")
        if asked != Trial.mode and (not seen or asked.rpartition(":")[2] not in seen):
            raise _another_mode(next(iter(seen), "a mode that nvpmodel did not name"), asked)

    def _modes(self, name: str) -> list[str]:
        files = [self.root / name / f for f in (board_script.BEFORE, board_script.AFTER)]
        found = [m for f in files if f.is_file() and (m := _MODE.search(_text(f)))]
        return [m[1] or f"number {m[2]}" for m in found]

    def machine(self) -> Machine:
        """Return the board as its own edgescope would describe it, from the copies of its files."""
        tree = Tree(self.root / "board")
        words = self.root / "architecture"
        tree.reported = {"architecture": _text(words).strip()} if words.is_file() else {}
        found = tree.machine({"plan": self.plan["id"], "made_with": self.plan["edgescope"]})
        mine = {"packages": {**found.state["packages"], "tensorrt": self.tensorrt()}}
        return Machine(found.stable, {**found.state, **mine})

    def tensorrt(self) -> str:
        """Return the version that the board's trtexec printed, or '' if no log has one."""
        logs = (self.root / name / board_script.LOG for name in self.plan["steps"])
        return next((v for log in logs if log.is_file() and (v := version_in(_text(log)))), "")

    def candidates(self) -> list[Back]:
        """Return the plan's candidates, each with its runs."""
        there = tool(self.plan["tensorrt"], boards()[self.plan["board"]].compute, self.plan["board"])
        found = []
        for entry in self.plan["candidates"]:
            trial = Trial.from_json(entry["trial"])
            model = HERE.model(trial)
            engine = self.root / plan.engine_of(entry["name"])
            apart = Apart.of(trial, model, there, HERE.folder, engine)
            found.append(Back(self, entry, model, apart))
        return found


def _release(version: str) -> list[str]:
    return version.split(".")[:2]


def _other(what: str, here: str, there: str, fix: str) -> DeviceError:
    return DeviceError(
        "E-PLAN-11",
        f"these are the results of another {what}",
        evidence=f"{here}; the plan is for {there}",
        effect=f"Its figures would carry this {what}'s name; nothing was read",
        fix=fix,
    )


def _another_mode(found: str, asked: str) -> DeviceError:
    return DeviceError(
        "E-PLAN-12",
        f"the board was not in {asked} all the time",
        evidence=f"nvpmodel said {found}",
        effect="Figures of two modes cannot be compared; nothing was read",
        fix="sudo nvpmodel -m ID, leave it, and run run.sh again",
    )


@dataclass(frozen=True)
class Back:
    """One candidate with what came back of it."""

    came: Came
    entry: Mapping[str, Json]
    model: Model
    apart: Apart

    @property
    def trial(self) -> Trial:
        """What was asked."""
        return self.apart.trial

    def results(self, machine: Machine) -> list[Result]:
        """Return a Result of every round that came back, failed ones too."""
        name = self.entry["name"]
        build = self.came.root / f"build-{name}"
        if not (build / board_script.LOG).is_file():
            return []
        rounds = [n for n in range(self.came.plan["rounds"]) if self._there(f"run{n}-{name}")]
        try:
            built = self.apart.built(*_said(build))
        except EdgescopeError as error:
            return [self._failed(error, machine, build)]
        answers = self._answers(built)
        return [self._result(built, n, machine, answers) for n in rounds]

    def _there(self, name: str) -> bool:
        return (self.came.root / name / board_script.LOG).is_file()

    def _failed(self, error: EdgescopeError, machine: Machine, folder: Path) -> Result:
        def failing(begun: Result) -> Result:
            raise error

        return guarded(Result.begun(self.trial, machine, at=_began(folder)), failing)

    def _result(self, built: Apart, number: int, machine: Machine, answers: Answer | Message) -> Result:
        folder = self.came.root / f"run{number}-{self.entry['name']}"
        trial = replace(self.trial, replicate=number)
        run = replace(built, trial=trial, run=replace(built.run, trial=trial))
        artifact = built.artifact()
        about = {**described(artifact), "planned_sha256": self.entry["form_sha256"]}
        program = Program(
            model=self.model.info,
            drive=lambda: [
                run.read(*_said(folder), folder, None if isinstance(answers, Message) else answers)
            ],
            verify=lambda driven, where: self._verify(trial, driven.answer_rows, answers, about, where),
            artifact=about,
        )

        def work(begun: Result) -> Result:
            watch = Unwatched()
            return concluded(begun, watch, replace(OwnLoop(program).measure(begun, watch), driver=ELSEWHERE))

        return guarded(Result.begun(trial, machine, at=_began(folder)), work)

    def _verify(
        self,
        trial: Trial,
        rows: int | None,
        answers: Answer | Message,
        about: Mapping[str, Json],
        where: Machine,
    ) -> GateOutcome | None:
        if isinstance(answers, Message):
            return answers
        asked = replace(trial, batch=rows or trial.batch)
        return gate.check(asked, self.model, answers, about, machine=where, parts=HERE)

    def _answers(self, built: Apart) -> Answer | Message:
        """Return what answers the gate's inputs with the board's outputs; the reason if they are not there."""
        rows = built.run.answer_rows or self.trial.batch
        known = dict[str, list[NDArray[Any]]]()
        try:
            batches = plan.gate_batches(self.model, self.trial, rows)
            for step, batch in zip(self.entry["gate"], batches, strict=True):
                folder = self.came.root / step
                outputs = built.answers(*_said(folder), folder)
                known |= dict(_rows(batch, outputs, rows))
        except (EdgescopeError, OSError, ValueError) as error:
            return _no_answers(str(error))
        return _answering(known) if known else _no_answers("none was planned")


def _no_answers(why: str) -> Message:
    return Message(
        "W-PLAN-1",
        "the board's answers to the accuracy gate's inputs did not come back",
        evidence=" ".join(why.split())[:200],
        effect="It is timed, and whether its outputs are right is not known",
        fix="run run.sh again, and leave all of results.tgz in it",
    )


def _rows(batch: Batch, outputs: Sequence[NDArray[Any]], rows: int) -> list[tuple[str, list[NDArray[Any]]]]:
    """Return (digest of one input, its rows of the outputs) for each input of a batch."""
    found = []
    for i in range(rows):
        one = {name: array[i : i + 1] for name, array in batch.items()}
        found.append((plan.batch_digest(one), [a if rows == 1 else a[i : i + 1] for a in outputs]))
    return found


def _answering(known: Mapping[str, list[NDArray[Any]]]) -> Callable[[Batch], Sequence[NDArray[Any]]]:
    """Return a function from a batch to the board's outputs for each of its inputs."""

    def answer(batch: Batch) -> Sequence[NDArray[Any]]:
        n = len(next(iter(batch.values())))
        each = [plan.batch_digest({name: a[i : i + 1] for name, a in batch.items()}) for i in range(n)]
        if missing := [name for name in each if name not in known]:
            raise DeviceError(
                "E-PLAN-9", "the gate asks for an input that the board was not given", evidence=missing[0]
            )
        parts = [known[name] for name in each]
        return parts[0] if n == 1 else [np.concatenate(column) for column in zip(*parts, strict=True)]

    return answer


class Unwatched(Watch):
    """Watches nothing: the run is over, and nothing on the board was sampled."""

    def __init__(self) -> None:
        super().__init__({}, 0)

    @contextmanager
    def watching(self) -> Iterator[None]:
        """Do nothing while the block runs."""
        yield

    def verdict(self, window: Window, speeds: str = "", away: str = "", *, apart: bool = False) -> Verdict:
        """Return UNKNOWN: whether clocks held and what else ran was not watched."""
        said = "nothing on the board was watched: power, heat, clocks and other programs are not known"
        return Verdict(Trust.UNKNOWN, (said, *([speeds] if speeds else [])))


def _text(path: Path) -> str:
    with path.open("rb") as file:
        return file.read(MOST_TEXT).decode(errors="replace")


def _said(folder: Path) -> tuple[str, int]:
    """Return the log of a run and its exit status."""
    code = _text(folder / board_script.CODE).strip()
    return _text(folder / board_script.LOG), int(code) if code.isdigit() else 1


def _began(folder: Path) -> datetime:
    """Return when a run began, by the board's clock."""
    text = _text(folder / board_script.BEGAN).strip() if (folder / board_script.BEGAN).is_file() else ""
    return datetime.fromtimestamp(int(text) if text.isdigit() and len(text) < 11 else 0, timezone.utc)


def _sums(text: str) -> list[tuple[str, str]]:
    """Return (path, SHA-256) of each line of sha256sum."""
    pairs = (line.split(maxsplit=1) for line in text.splitlines())
    return [(p[1].lstrip("*").removeprefix("./"), p[0]) for p in pairs if len(p) == 2]
