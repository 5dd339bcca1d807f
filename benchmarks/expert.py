"""The picks of a study's eleven networks beside what an expert would write by hand, and beside eager fp32.

    python benchmarks/expert.py COMMAND --help

The commands: the pick beside loops written by hand (beside), the eleven networks of a study (table), and a machine's
measured ceilings (roofs).
"""

from __future__ import annotations

import argparse
import contextlib
import importlib.util
import json
import math
import os
import random
import re
import statistics
import subprocess
import sys
import tempfile
from collections.abc import Collection, Mapping, Sequence
from pathlib import Path
from typing import Any

import facts
from by_hand import EXPERTS
from facts import PUBLISHED, machine_id, publish

from edgescope.analysis.cells.replicates import of_pairs
from edgescope.bench.worker import until_asleep
from edgescope.records import Absent
from edgescope.stats.alternation import mean_ratio
from edgescope.store.results import Store
from edgescope.verify.judge import L2_CEILING
from edgescope.wings.doctor import ceilings
from edgescope.wings.studies.jetson_nano.table import picked, study

LEFT_OUT = "left out"
"""How the reason begins where an expert's arm was not asked, though it could have been."""
LABEL = re.compile(r"(?P<backend>\w+)(?: (?P<device>cuda))? (?P<precision>\w+) b1(?P<options>(?: \w+=\S+)*)")


def from_table(path: Path | str, device: str) -> dict[str, dict[str, Any] | None]:
    """Model -> backend, precision and options of a published table's pick; None where it has none.

    SystemExit for a file that is no such table, one of another device, or a label that is not understood.
    """
    try:
        figures = facts.loaded(path)["figures"]
        of, rows = figures["device"], {row["model"]: row["variant"] for row in figures["rows"]}
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise SystemExit(f"{path} is no published table: {type(error).__name__}: {error}") from error
    if of != device:
        raise SystemExit(f"{path} is of device {of}, not {device}. Try: --device {of}")
    return {model: read_label(label, device) if label else None for model, label in rows.items()}


def read_label(label: str, device: str) -> dict[str, Any]:
    """Backend, precision and options of a variant's label; SystemExit for one not of batch 1 on `device`."""
    found = LABEL.fullmatch(label)
    if not found or (found["device"] or "cpu") != device:
        raise SystemExit(f"the label {label!r} is not of a plain variant of batch 1 on {device}")
    pairs = (part.split("=", 1) for part in found["options"].split())
    options = {name: _scalar(text) for name, text in pairs}
    return {"backend": found["backend"], "precision": found["precision"], "options": options}


def _scalar(text: str) -> bool | int | float | str:
    """What a label printed: a truth value, a number or a word."""
    if text.lower() in ("true", "false"):
        return text.lower() == "true"
    for kind in (int, float):
        try:
            return kind(text)
        except ValueError:
            continue
    return text


def left_out(found: dict[str, Any]) -> set[str]:
    """The experts' arms that were left out when a model was measured."""
    return {name for name, arm in found.get("arms", {}).items() if arm.get("absent", "").startswith(LEFT_OUT)}


class Partial:
    """What was measured of each model so far, written after every one; without a path, nothing is kept."""

    def __init__(self, path: str, settings: Mapping[str, Any]) -> None:
        self.path, self.settings = Path(path) if path else None, dict(settings)
        self.models: dict[str, Any] = {}
        if self.path and self.path.exists():
            kept = json.loads(self.path.read_text())
            kept = kept.get("figures", kept)  # a published page
            found = {k: v for k, v in kept["settings"].items() if k != "rounds"}  # older pages: of all models
            if found != self.settings:
                raise SystemExit(f"{path} was measured under {found}, this is {self.settings}")
            self.models = kept["models"]

    def get(
        self, model: str, pick: dict[str, Any] | None, rounds: int, without: Collection[str] = ()
    ) -> dict[str, Any] | None:
        """What was measured of a model with this very pick, in at least so many rounds, with all arms but `without`."""
        found: dict[str, Any] | None = self.models.get(model)
        if pick is None or found is None or found.get("pick") != pick or left_out(found) - set(without):
            return None
        return found if found.get("ratio", {}).get("n", rounds) >= rounds else None

    def put(self, model: str, found: dict[str, Any]) -> None:
        """Keep what was measured of a model, whole or not at all."""
        self.models[model] = found
        if self.path:
            temporary = self.path.with_name(f".{self.path.name}.new")
            temporary.write_text(
                json.dumps({"settings": self.settings, "models": self.models}, indent=1) + "\n"
            )
            temporary.replace(self.path)


TARGET = 0.97
FAMILIES = {"cpu": ("openvino", "torch_compile"), "cuda": ("torch_compile", "onnxruntime_graph")}
"""What an expert would try first: the pick must have been held against each."""
BEFORE = {"backend": "torch_eager", "precision": "fp32", "options": {}}
OURS = ("pick", "before")
SLOW = 1.5
"""An expert's arm this many times slower than the best of the first round cannot become the best of three."""
NO_PICK = "the store or the table has no pick for this model"


class Arm:
    """One process that answers one way: started, then loaded, then asked for turns."""

    def __init__(self, name: str, model: str, device: str, shared: str, spec: dict[str, Any] | None) -> None:
        script = str(Path(__file__).with_name("by_hand.py"))
        rest = [] if spec is None else [json.dumps(spec)]
        command = [sys.executable, script, "network", name, model, device, shared, *rest]
        self.process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
        self.ready: dict[str, Any] = {}

    def _read(self) -> dict[str, Any]:
        line = self.process.stdout.readline() if self.process.stdout else ""
        return json.loads(line) if line else {"absent": f"the process ended with {self.process.wait()}"}

    def imported(self) -> None:
        """Wait until the process has its libraries."""
        self.ready = self._read()

    def load(self) -> None:
        """Let it load, warm up and show its outputs."""
        if "absent" not in self.ready:
            self.ready = self._ask("load")

    def _ask(self, question: str) -> dict[str, Any]:
        assert self.process.stdin is not None
        try:
            self.process.stdin.write(f"{question}\n")
            self.process.stdin.flush()
            return self._read()
        except OSError:  # it died before the question
            return {"absent": f"the process ended with {self.process.wait()}"}

    def turn(self, seconds: float) -> float | None:
        """Median latency, in seconds, of one turn; None where the process died, and `ready` then says so."""
        answer = self._ask(f"go {seconds}")
        if "absent" in answer:
            self.ready = answer
            return None
        until_asleep(self.process.pid)
        return float(answer["median_s"])

    def close(self) -> None:
        """Let the process end."""
        if self.process.stdin:
            with contextlib.suppress(OSError):
                self.process.stdin.close()
        self.process.wait()


def one_round(
    model: str,
    pick: dict[str, Any],
    args: argparse.Namespace,
    rng: random.Random,
    shared: str,
    slow: Collection[str],
) -> dict[str, Any]:
    """Arm -> {median_s, centred_l2} or {absent}, of one set of fresh processes, without the experts that are slow."""
    specs = {"pick": pick, "before": BEFORE} | {n: None for n in EXPERTS[args.device] if n not in slow}
    arms: dict[str, Arm] = {}
    try:
        arms |= {name: Arm(name, model, args.device, shared, spec) for name, spec in specs.items()}
        for arm in arms.values():
            arm.imported()
        for arm in arms.values():  # one after another: loading must not disturb a check
            arm.load()
        medians = take_turns(arms, args, rng)
        return {n: a.ready | medians.get(n, {}) for n, a in arms.items()}
    finally:
        for arm in arms.values():
            arm.close()


def take_turns(arms: Mapping[str, Arm], args: argparse.Namespace, rng: random.Random) -> dict[str, Any]:
    """Arm -> {median_s} of those that lived through all turns."""
    turns: dict[str, list[float]] = {n: [] for n in arms}
    for _ in range(args.turns):
        alive = [n for n, a in arms.items() if "absent" not in a.ready]
        for name in rng.sample(alive, len(alive)):
            seconds = arms[name].turn(args.seconds)
            turns[name] += [] if seconds is None else [seconds]
    return {
        n: {"median_s": statistics.median(turns[n]), "turns_s": turns[n]}
        for n, a in arms.items()
        if "absent" not in a.ready
    }


def judged(rounds: list[dict[str, Any]]) -> dict[str, Any]:
    """The arms over all rounds, the best eligible expert, and how fast the pick is beside it."""
    arms = {n: [r[n] for r in rounds if n in r] for n in rounds[0]}
    out: dict[str, Any] = {"arms": {n: _arm(found) for n, found in arms.items()}}
    usable = {
        n: a["median_s"]
        for n, a in out["arms"].items()
        if n not in OURS and a.get("eligible") and len(arms[n]) == len(rounds)
    }
    pick = out["arms"]["pick"]
    if "median_s" in pick and "median_s" in out["arms"].get("before", {}):
        out["speedup"] = _ratio(arms["before"], arms["pick"])
    if not usable or "median_s" not in pick:
        return out | {"ratio": {"absent": "the pick or every expert's arm is missing"}}
    if not pick["eligible"]:
        why = f"the pick's centred L2 is {pick['centred_l2']:.3g}, more than {L2_CEILING:g}"
        return out | {"ratio": {"absent": why}}
    best = min(usable, key=lambda n: usable[n])
    return out | {"best_expert": best, "ratio": _ratio(arms[best], arms["pick"])}


def _ratio(slower: list[dict[str, Any]], faster: list[dict[str, Any]]) -> dict[str, Any]:
    """How many times longer the one took than the other in the same turns, with the interval over rounds."""
    found = [
        math.log(statistics.median(_turns(one)) / statistics.median(_turns(other)))
        for one, other in zip(slower, faster, strict=True)
    ]
    ratio = of_pairs(mean_ratio(found), "--rounds")
    if isinstance(ratio, Absent):  # what the rounds do not resolve is no ratio
        return {"absent": ratio.reason}
    return {"value": ratio.value, "lo": ratio.lo, "hi": ratio.hi, "n": ratio.n}


def _turns(arm: dict[str, Any]) -> list[float]:
    """The medians of its turns; of a page from before they were kept, the one median of all."""
    return list(arm.get("turns_s", [arm["median_s"]]))


def too_slow(first: dict[str, Any]) -> set[str]:
    """The experts that cannot be the best any more after the first round."""
    times = {n: a["median_s"] for n, a in first.items() if n not in OURS and "median_s" in a}
    right = [s for n, s in times.items() if first[n]["centred_l2"] <= L2_CEILING]
    return {n for n, s in times.items() if right and s > SLOW * min(right)}


def _arm(found: list[dict[str, Any]]) -> dict[str, Any]:
    missing = next((r["absent"] for r in found if "absent" in r), None)
    if missing:
        return {"absent": missing}
    l2 = max(r["centred_l2"] for r in found)
    median = statistics.median(r["median_s"] for r in found)
    loads = [r["load_s"] for r in found if "load_s" in r]  # until the first answer, compiling included
    return {"median_s": median, "load_s": loads, "centred_l2": l2, "eligible": l2 <= L2_CEILING}


def lacking(found: dict[str, Any], device: str) -> list[str]:
    """The families of experts by which nothing was beaten.

    No arm of theirs is right; and one did not run, or was quicker than the pick. Where all ran, wrong and yet no
    quicker, the pick has beaten what that family can do at its fastest.
    """
    arms = found.get("arms", {})
    pick = arms.get("pick", {}).get("median_s", math.inf)

    def beaten(family: str) -> bool:
        known = [arms.get(n, {}) for n in EXPERTS[device] if n.startswith(family)]
        right = any(a.get("eligible") for a in known)
        return right or all(a.get("median_s", 0.0) >= pick for a in known)

    return [f for f in FAMILIES[device] if not beaten(f)]


def expert_met(found: dict[str, dict[str, Any]], device: str) -> bool:
    """Whether the target is reached on all the study's models, every expert's arm asked, every family beaten."""
    if not expert_whole(list(found)) or any(lacking(f, device) or left_out(f) for f in found.values()):
        return False
    return all(f["ratio"].get("value", 0.0) >= TARGET for f in found.values())


def expert_whole(models: Sequence[str]) -> bool:
    """Whether these are all the study's models."""
    return set(models) >= {r.ours for r in study().rows}


def picks(args: argparse.Namespace) -> dict[str, dict[str, Any] | None]:
    """Model -> backend, precision and options of the pick; None where the store has none."""
    names = args.models or [r.ours for r in study().rows]
    if args.pick:
        return {m: {"options": {}} | json.loads(args.pick) for m in names}
    if args.table:
        known = [from_table(Path(path), args.device) for path in args.table]
        return {m: next((k[m] for k in known if k.get(m)), None) for m in names}
    store = Store(Path(args.store))
    found = {
        m: picked(store.fulls(r for r in store.results() if r.trial.model == m), m, args.device)
        for m in names
    }
    return {
        m: {"backend": t.backend, "precision": t.precision, "options": dict(t.options)} if t else None
        for m, t in found.items()
    }


def measured(model: str, pick: dict[str, Any] | None, args: argparse.Namespace, rng: random.Random) -> Any:
    """What is published of one model."""
    if pick is None:
        return {"pick": {"absent": NO_PICK}, "ratio": {"absent": NO_PICK}}
    out = set(args.leave_out)
    with tempfile.TemporaryDirectory() as shared:
        rounds = [one_round(model, pick, args, rng, shared, out)]
        slow = out | too_slow(rounds[0])
        rounds += [one_round(model, pick, args, rng, shared, slow) for _ in range(args.rounds - 1)]
    found = judged(rounds)
    found["arms"] |= {name: {"absent": f"{LEFT_OUT} by --leave-out"} for name in args.leave_out}
    return {"pick": pick} | found


def settings(args: argparse.Namespace) -> dict[str, Any]:
    """What two models of one table must share; how many rounds each had is the n of its ratio."""
    return {k: getattr(args, k) for k in ("device", "turns", "seconds")}


def all_measured(args: argparse.Namespace) -> dict[str, dict[str, Any]]:
    """Model -> what is published of it, those of the partial file as they are there."""
    partial, found = Partial(args.partial, settings(args)), {}
    for model, pick in picks(args).items():
        kept = partial.get(model, pick, args.rounds, args.leave_out)
        found[model] = kept or measured(model, pick, args, random.Random(model))
        found[model]["families_missing"] = lacking(found[model], args.device)
        found[model].setdefault("machine_id", machine_id())
        partial.put(model, found[model])
        said = json.dumps(found[model]["ratio"])
        print(model, said, "(measured before)" if kept else "", file=sys.stderr, flush=True)
    return found


def by_machine(found: Mapping[str, Mapping[str, Any]]) -> dict[str, list[str]]:
    """Machine id -> the models measured there; the page's own command, time and machine are those of the last run."""
    ids = dict.fromkeys(f["machine_id"] for f in found.values())
    return {known: [m for m, f in found.items() if f["machine_id"] == known] for known in ids}


def beside() -> None:
    """The pick against the best loop an expert would write by hand, on the same machine in the same minutes.

    The pick of each model is read from a store (the same rule as `edgescope optimize`), from published tables
    (--table: the first that has one), or named by --pick. With --partial FILE what was measured is written after
    every model, and the same command goes on where it was stopped; name the file as seen from here, because the
    command is published. A copy of a published page of some of the models is such a file, too: an entry names the
    machine it was measured on, and those of two models may differ; `machines` says whose is whose. An entry of fewer
    rounds than are asked for is measured anew: with --models and more --rounds, one whose interval leaves it open. An
    expert's arm named by --leave-out is not started (compiling may take more time than there is), and the page says
    so. Every round starts each arm in a fresh process, lets it load, warm up and show its outputs, then gives them
    turns of --seconds in random order, one at a time. An expert's arm counts if its outputs are within the gate's
    bound (centred L2 <= 0.1); one that needed more than SLOW times the best's time in the first round is not started
    again. Beside them runs edgescope's eager fp32, the `before` of the study's table: what the pick gains over it, in
    the same minutes. Target: the pick's speed is at least 0.97 of the best such arm's on every one of the study's
    models, by the ratio over rounds, the pick's own outputs being within the bound, no arm left out, and an arm of
    each of FAMILIES being right, or none of the family quicker than the pick even with wrong outputs. A part of the
    models, or a pick that was named, is published under another name.

        python benchmarks/expert.py beside --store DIR [--device cpu|cuda] [--models A,B] [--rounds 3]
        python benchmarks/expert.py beside --table nano_table/cpu --partial expert.part.json
        python benchmarks/expert.py beside --models squeezenet1_1 --pick '{"backend": "openvino", "precision": "fp32"}'
    """
    parser = argparse.ArgumentParser(description=facts.text(beside))
    parser.add_argument("--store", default="edgescope-results")
    parser.add_argument(
        "--pick", default="", help="JSON with backend, precision and options, for all --models"
    )
    parser.add_argument(
        "--table", action="append", default=[], help="a published table whose picks are taken"
    )
    parser.add_argument(
        "--partial", default="", help="file kept up to date; measured models are not repeated"
    )
    parser.add_argument("--device", default="cpu", choices=("cpu", "cuda"))
    parser.add_argument("--models", type=lambda text: text.split(","), default=[])
    parser.add_argument("--leave-out", type=lambda text: text.split(","), default=[], metavar="ARM,..")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--turns", type=int, default=20)
    parser.add_argument("--seconds", type=float, default=0.1)
    args = parser.parse_args()
    if unknown := set(args.leave_out) - set(EXPERTS[args.device]):
        parser.error(f"no expert's arm is called {', '.join(sorted(unknown))}")
    found = all_measured(args)
    ratios = [f["ratio"]["value"] for f in found.values() if "value" in f["ratio"]]
    worst = {"value": min(ratios), "n": len(ratios)} if ratios else {"absent": "no model has a ratio"}
    gains = [f["speedup"]["value"] for f in found.values() if "value" in f.get("speedup", {})]
    mean = (
        {"value": statistics.geometric_mean(gains), "n": len(gains)}
        if gains
        else {"absent": "no model has one"}
    )
    figures = {
        "settings": settings(args),
        "target": TARGET,
        "worst": worst,
        "mean_speedup": mean,
        "machines": by_machine(found),
        "models": found,
    }
    part = "" if expert_whole(list(found)) and not args.pick else "_subset"
    publish(f"expert/{args.device}{part}", figures, met=not part and expert_met(found, args.device))


STUDY_MEAN, CPU_MEAN, RESNET = 7.07, 3.0, 7.0
SHARE = (0.8, 1.05)
"""Of the limit: near it, and not so far above that the ceilings cannot be right."""
BASELINE = "torch_eager "
DISTURBED = {"THROTTLED", "DISTURBED"}


def command(args: argparse.Namespace, *more: str) -> list[str]:
    """The study's command line."""
    cli = str(Path(sys.executable).parent.absolute() / "edgescope")
    line = [cli, "study", "nano_table", "--device", args.device, "--store", str(args.store)]
    line += ["--models", args.models] if args.models else []
    ceilings = args.ceilings or PUBLISHED / f"ceilings_{args.device}.json"
    return [*line, *(["--ceilings", os.path.relpath(ceilings)] if ceilings.exists() else []), *more]


def table_met(found: dict[str, Any], device: str) -> bool:
    """Whether the targets are reached, by all the study's networks and by figures that can be trusted."""
    rows = {row["model"]: row for row in found["rows"]}
    if not table_whole(list(rows)) or not all(sound(row) for row in rows.values()):
        return False
    mean = found["geometric"].get("value", 0.0)
    if device == "cpu":
        return bool(mean > CPU_MEAN)
    slow = [r for r in rows.values() if r["speedup"]["value"] < STUDY_MEAN]
    near = all(SHARE[0] <= r["of_limit"].get("value", 0.0) <= SHARE[1] for r in slow)
    fast = mean > STUDY_MEAN and rows["resnet50"]["speedup"]["value"] >= RESNET
    return bool(fast or (slow and near))


def table_whole(models: list[str]) -> bool:
    """Whether these are all the study's networks."""
    return set(models) >= {r.ours for r in study().rows}


def sound(row: dict[str, Any]) -> bool:
    """Whether a row has a speed-up with its interval (the baseline itself needs none) from an undisturbed machine."""
    speedup = row["speedup"]
    if "absent" in speedup or DISTURBED & set(row["verdicts"]):
        return False
    itself = speedup["value"] == 1.0 and row["variant"].startswith(BASELINE)
    return itself or None not in (speedup.get("lo"), speedup.get("hi"))


def named(device: str, models: list[str]) -> str:
    """Name of what is published."""
    return f"nano_table/{device}" + ("" if table_whole(models) else "_subset")


def table() -> None:
    """The Jetson Nano study's table, measured here: `edgescope study nano_table` with every gain, bound and gate.

    Runs the eleven networks (fresh processes, interleaved, gated; what the store holds is not measured again),
    publishes the rows and the means, and, where Plotly is installed, the page and the Markdown beside them. Targets:
    on a GPU the geometric mean is above the study's arithmetic 7.07 and ResNet50 at 7 or more, each by the value with
    its interval published, or else every network below 7.07 at 0.8 to 1.05 of what the machine's measured ceilings
    allow it; on a CPU the geometric mean is above 3. They are reached by all eleven networks, each speed-up with its
    interval, on a machine that nothing disturbed, or not at all; a part of the networks is published under another
    name.

        python benchmarks/expert.py table --store DIR [--device cpu|cuda] [--budget 90] [--models A,B] [--ceilings FILE]
    """
    parser = argparse.ArgumentParser(description=facts.text(table))
    parser.add_argument("--store", type=Path, required=True)
    parser.add_argument("--device", default="cpu", choices=("cpu", "cuda"))
    parser.add_argument("--budget", default="90")
    parser.add_argument("--models", default="")
    parser.add_argument("--ceilings", type=Path, default=None)
    parser.add_argument("--no-run", action="store_true", help="publish what the store holds")
    args = parser.parse_args()
    measure = [] if args.no_run else ["--run", "--budget", args.budget]
    done = subprocess.run(command(args, *measure, "--json"), stdout=subprocess.PIPE, text=True, check=False)
    if not done.stdout:
        raise SystemExit(done.returncode)
    found = json.loads(done.stdout)
    name = named(args.device, [row["model"] for row in found["rows"]])
    newest = max(
        (r for r in Store(args.store).results() if r.machine.id == found["machine"]),
        key=lambda r: r.started_at,
    )
    publish(name, found, met=table_met(found, args.device), source=newest)
    if importlib.util.find_spec("plotly"):
        page = os.path.relpath(PUBLISHED / f"{name.replace('/', '_')}.md")
        subprocess.run(command(args, "--output", page), check=True, stdout=subprocess.DEVNULL)


NEEDED = {"cpu": ("fp32",), "cuda": ("fp32", "tf32", "fp16")}


def roofs() -> None:
    """The ceilings of this machine, published: what `edgescope doctor --roofline` measures and keeps in a store.

    There is no target; `met` says that every part was measured.

        python benchmarks/expert.py roofs [--device cpu|cuda] [--seconds 1]
    """
    parser = argparse.ArgumentParser(description=facts.text(roofs))
    parser.add_argument("--device", default="cpu", choices=("cpu", "cuda"))
    parser.add_argument("--seconds", type=float, default=1.0, help="for each figure")
    args = parser.parse_args()
    figures = ceilings.measure(args.device, seconds=args.seconds)
    publish(f"ceilings_{args.device}", figures, met=roofs_met(args.device, figures["flops"]))


def roofs_met(device: str, flops: dict[str, Any]) -> bool:
    """Whether every precision that a limit on this device needs was measured."""
    return all("value" in flops.get(name, {}) for name in NEEDED[device])


if __name__ == "__main__":
    facts.chosen(beside, table, roofs)
