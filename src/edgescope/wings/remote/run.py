"""run(trial) with the program on a board: the host exports, compares and stores; the board runs and is measured.

It is `bench.run` for a backend that owns its loop, with three parts replaced: the machine is the board, the watch is
the agent's sampler with the board's own throttling counters before and after, and the program runs on the board.
"""

from __future__ import annotations

import os
import time
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path

from edgescope import registry
from edgescope.backends.base import Backend, spec_of
from edgescope.bench import SAMPLER_HZ, refused
from edgescope.bench.outcome import concluded, guarded
from edgescope.bench.parts import Here, prepare_trial, program_of
from edgescope.bench.programs import OwnLoop
from edgescope.bench.watch import Watch
from edgescope.clock import Clock
from edgescope.devices.manifest import here
from edgescope.errors import EdgescopeError, UnavailableError, UnsupportedError, UsageError
from edgescope.isolate import fresh
from edgescope.isolate.fresh import Limits
from edgescope.records import Idle, Json, Machine, Result, Status, Trial
from edgescope.store import handed_rows, results
from edgescope.wings.remote import address, errors
from edgescope.wings.remote.board import Board, opened
from edgescope.wings.remote.eager import BoardEager

#: Seconds between two keep-alives while the board idles.
REST_S = 2.0
#: Backends whose program can run on a board, and the kinds of work that it does.
WORK = {"trtexec": ("inference",), "torch_eager": ("inference", "training")}
BACKENDS = tuple(WORK)


def check(url: str, trials: Sequence[Trial] = ()) -> Machine:
    """Connect to the board that `--on` names and return its Machine.

    EdgescopeError if it cannot be used, if no board could run one of the trials, or if it lacks what all of them need.
    """
    where = address.parse(url)
    refuse(trials)
    needs = {(t.backend, t.device, t.precision, t.options.get("program")): t for t in trials}
    with opened(where) as board:
        for mode in {t.mode for t in trials} - {Trial.mode}:
            board.power_mode(mode)
        lacking = []
        for trial in needs.values():
            try:
                OnBoard(board).present(trial)
            except (UnavailableError, UnsupportedError) as error:
                lacking.append(error)
        if lacking and len(lacking) == len(needs):
            raise lacking[0]
        return board.machine()


def engines(url: str) -> list[dict[str, Json]]:
    """Return the rows of `edgescope backends` for a board: what it can run, what it lacks, and what no board runs."""
    nothing = errors.wrong_backend("this engine")
    rows = {name: _row(None, {d: nothing for d in registry.PLACES}, ()) for name in registry.BACKENDS}
    with opened(address.parse(url)) as board:
        for name in BACKENDS:
            lacks = dict[str, EdgescopeError]()
            for device in registry.BACKENDS[name].devices:
                try:
                    OnBoard(board).present(Trial(model="null", backend=name, device=device))
                except (UnavailableError, UnsupportedError) as error:
                    lacks[device] = error
            every = len(lacks) == len(registry.BACKENDS[name].devices)
            options = OnBoard(board).backend(name).OPTIONS
            rows[name] = _row(next(iter(lacks.values())) if every else None, lacks, options)
    return [{"name": name, **row} for name, row in rows.items()]


def _row(
    lacking: EdgescopeError | None, without: Mapping[str, EdgescopeError], options: Collection[str]
) -> dict[str, Json]:
    """Return a row without its name."""
    return {
        "available": lacking is None,
        "options": list(options),
        "reason": lacking.what if lacking else "",
        "fix": lacking.fix if lacking else "",
        "without": {device: {"reason": error.what, "fix": error.fix} for device, error in without.items()},
    }


def refuse(trials: Iterable[Trial]) -> None:
    """Raise UsageError for a trial that cannot run over ssh, whatever the board is."""
    for trial in trials:
        able = [backend for backend, kinds in WORK.items() if trial.workload in kinds]
        if able and trial.backend not in BACKENDS:
            raise errors.wrong_backend(trial.backend)
        if trial.backend not in able:
            raise errors.wrong_workload(trial, able)
        if set(trial.mode) & set("=+") or trial.mode == "jetson_clocks":
            raise errors.no_mode(trial.mode)


class OneByOne:
    """Runs each trial in a process that drives the board: never two in turns, and none ahead of the others.

    What no board does is a Result that says so, without a process: whoever planned it has a reason in its place.
    """

    def prepare(self, trial: Trial, limits: Limits) -> Result | None:
        """Build artifact and reference; return the Result of a failure, else None."""
        in_any_mode = replace(trial, mode=Trial.mode)  # other trials may share what is built
        return _not_there(in_any_mode) or fresh.prepare(trial, limits)

    def run(self, trial: Trial, limits: Limits) -> Result:
        """Run the trial on the board."""
        return _not_there(trial) or fresh.run(trial, limits)


def _not_there(trial: Trial) -> Result | None:
    """Return the Result of a trial that no board does, else None."""
    try:
        refuse([trial])
    except UsageError as error:
        return Result.begun(trial, here(), Status.UNSUPPORTED, error.message)
    return None


def serve(verb: str, trial: Trial, url: str, folder: Path) -> None:
    """Run or prepare the trial on the board; write FOLDER/begun and FOLDER/result, as edgescope.bench.child does."""
    for name in ("begun", "result"):
        (folder / name).mkdir()
    try:
        with opened(address.parse(url)) as board:
            begun = Result.begun(trial, board.machine())
            results.write(begun, folder / "begun", handed_rows)
            result = (prepare if verb == "prepare" else answer)(begun, board)
    except EdgescopeError as error:  # before the board's facts arrived, or while closing
        result = refused(trial, Machine({"absent": f"{url} could not be reached"}, {}), error)
    results.write(result, folder / "result", handed_rows)


def prepare(begun: Result, board: Board) -> Result:
    """Build the engine on the board and the reference here; return a Result whose status is ok if both exist."""

    def build(begun: Result) -> Result:
        refuse([replace(begun.trial, mode=Trial.mode)])  # the artifact is that of every mode
        prepare_trial(begun.trial, OnBoard(board))
        return begun.ended(Status.OK)

    return guarded(begun, build)


def answer(begun: Result, board: Board) -> Result:
    """Measure the trial of a begun Result on the board and return the finished one."""
    return guarded(begun, lambda bare: _measure(bare, board))


def _measure(bare: Result, board: Board) -> Result:
    trial, watch = bare.trial, BoardWatch(board)
    refuse([trial])
    if trial.sharing != Trial.sharing or trial.colocated:
        raise errors.alike_only(trial.label)
    program = program_of(trial, OnBoard(board))
    assert program is not None, trial.backend  # every engine of BACKENDS owns its loop
    with board.in_mode(trial.mode) as in_effect:
        bare = replace(bare, machine=board.machine()) if in_effect else bare
        run = OwnLoop(program).measure(bare, watch)
        about = {"agent": board.about(board.wire.offset())}
        run = replace(run, driver="agent", artifact={**run.artifact, **about})
        return concluded(bare, watch, run, in_effect)


class OnBoard(Here):
    """Models and reference engines of this machine; programs run on the board."""

    def __init__(self, board: Board) -> None:
        self.board = board

    def backend(self, name: str) -> Backend:
        """Return the engine called `name`."""
        if name not in BACKENDS:
            return super().backend(name)
        if name == "torch_eager":
            return BoardEager(self.board)
        made: Backend = registry.load(registry.BACKENDS, name, "backend")(self.board)
        return made

    def present(self, trial: Trial) -> None:
        """Raise UnavailableError if the board lacks the program of the trial's engine."""
        if trial.backend == "torch_eager":
            BoardEager(self.board).survey(spec_of(trial))
            return
        named = trial.options.get("program")
        self.board.find(None if named is None else str(named))


class BoardWatch(Watch):
    """Watches a board through its agent; there is no spin probe: the board's Python may be too old for it."""

    def __init__(self, board: Board, hz: float = SAMPLER_HZ) -> None:
        super().__init__(board.tree.devices(), hz)
        self.board = board

    @contextmanager
    def watching(self) -> Iterator[None]:
        """Watch while the block runs; the throttling counters come in files that the agent sends before and after."""
        self.board.look()
        with self.throttling():
            with self.board.sampling(self.hz) as rows:
                yield
            self.board.look()
        facts = self.board.machine().state.get("jetson", {})
        self.readings, self.cost = rows.readings(facts), rows.cost()

    def _rest(self, when: str, seconds: float, clock: Clock) -> None:
        """Idle as Watch does, but on the board's clock, and send the agent keep-alives."""
        if seconds <= 0:
            return
        start = _now_ns(self.board)
        stop = start + round(seconds * 1e9)
        while (left := stop - _now_ns(self.board)) > 0:
            time.sleep(min(REST_S, left / 1e9))
        self.idle = (*self.idle, Idle(when, start, stop))


def _now_ns(board: Board) -> int:
    """Return the board's clock."""
    return round(float(board.wire.call("ping")["t_s"]) * 1e9)


def named() -> str:
    """Return the address of the board that this process drives, or '' if none."""
    return os.environ.get(registry.ON, "")
