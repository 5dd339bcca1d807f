"""The study's grid: one setting at a time away from its usual cell, for each of three networks; what was measured."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from edgescope import cache, registry
from edgescope.analysis.cells.concurrency import scaled
from edgescope.analysis.cells.replicates import across, spread
from edgescope.records import Field, Measured, Result, Role, Status, Trial
from edgescope.report import document as doc
from edgescope.stats import paired_log_ratio
from edgescope.wings.studies import boards, claim
from edgescope.wings.studies.boards import Entry
from edgescope.wings.studies.claim import Answer, Claim, Voice, held
from edgescope.wings.studies.page import Content, Reading, reasons, where
from edgescope.wings.studies.paper import Paper, papers

NAME = "training"
REPLICATES = 3
LONGEST_S = 60.0
"""Longest run of a cell; epochs that did not end within it are left out."""
GOOD = (Status.OK, Status.UNSTABLE)


@dataclass(frozen=True)
class Network:
    """One of the study's networks with its data."""

    model: str
    paper: str
    count: int
    side: tuple[int, int]
    packed: bool
    grey: bool
    cpu_samples: int
    """Samples in an epoch on a CPU; a GPU takes them all."""

    @property
    def folder(self) -> Path:
        """Return where its data set lies."""
        return cache.folder("training") / f"{self.model}-{self.count}-{self.side[0]}x{self.side[1]}"


def networks(paper: Paper | None = None) -> list[Network]:
    """Return the study's networks."""
    rows = (paper or papers()[NAME]).page["network"]
    usual = {"packed": False, "grey": False}
    return [Network(**{**usual, **row, "side": tuple(row["side"])}) for row in rows]


def trials(device: str, models: tuple[str, ...] = (), modes: Sequence[str] = ()) -> Iterator[Trial]:
    """Yield every trial, all cells once, then again for each further replicate."""
    for number in range(REPLICATES):
        for network in networks():
            if not models or network.model.startswith(models):
                for trial in cells(network, device, modes):
                    yield replace(trial, replicate=number)


def cells(network: Network, device: str, modes: Sequence[str] = ()) -> list[Trial]:
    """Return the cells of one network: the usual one first, at last in each of a board's `modes`."""
    page = papers()[NAME].page
    usual = _usual(network, device, page["protocol"])
    found = [usual]
    for axis in page["axis"]:
        if axis.get("files") and network.packed:
            continue
        base = _with(usual, "num_workers", axis["workers"]) if "workers" in axis else usual
        found += [_with(base, axis["name"], value) for value in axis["values"]]
    found += [_with(usual, "mode", mode) for mode in modes]
    return list({trial.id: trial for trial in found}.values())


def _usual(network: Network, device: str, protocol: Mapping[str, Any]) -> Trial:
    options: dict[str, Any] = {
        "images": str(network.folder),
        "epochs": protocol["epochs"],
        "num_workers": protocol["workers"],
        "prefetch_factor": 2,
    }
    if not network.packed:
        options["page_cache"] = protocol["page_cache"]
    if registry.place(device).is_host:
        options["epoch_samples"] = network.cpu_samples
    return Trial(
        model=network.model,
        device=device,
        batch=protocol["batch"],
        workload="training",
        workload_options=options,
        warmup=0.0,
        min_s=LONGEST_S,
        max_s=LONGEST_S,
    )


def _with(trial: Trial, name: str, value: Any) -> Trial:
    if name in ("batch", "mode"):
        fields: dict[str, Any] = {name: value}
        return replace(trial, **fields)
    return replace(trial, workload_options={**trial.workload_options, name: value})


class Place(NamedTuple):
    """What tells the study's cells apart; whatever else a trial may differ in makes it another study's."""

    model: str
    workers: int
    batch: int
    medium: str
    mode: str
    device: str


def place(trial: Trial) -> Place:
    """Return the cell of the study that a trial belongs to."""
    options = trial.workload_options
    return Place(
        trial.model.partition("#")[0],
        int(options.get("num_workers", 0)),
        trial.batch,
        str(options.get("medium", "as_is")),
        trial.mode,
        trial.device,
    )


def belongs(trial: Trial) -> bool:
    """Return whether a trial is a cell of the grid, in this mode or another: the same data, engine and protocol.

    The length of the run is free: epochs that did not end within it are left out anyway.
    """
    protocol = papers()[NAME].page["protocol"]
    named = [n for n in networks() if n.model == trial.model.partition("#")[0]]
    return any(_fixed(trial) == _fixed(_usual(network, trial.device, protocol)) for network in named)


ASKED = Role.ARTIFACT | Role.LOAD | Role.CONCURRENCY | Role.SHARING | Role.TRACING
AXES = ("num_workers", "medium")
"""Options of the workload that the grid varies, besides the fields batch and mode."""


def _fixed(trial: Trial) -> tuple[str, dict[str, Any]]:
    """Return all that the grid does not vary; the folder of the pictures by its name, wherever the cache was."""
    options = {name: value for name, value in trial.workload_options.items() if name not in AXES}
    options["images"] = Path(str(options.get("images", ""))).name
    return trial.key(ASKED, but=("model", "workload_options")), options


# -- what was measured ---------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Cells:
    """The runs of each cell of the grid, in the order of their replicates."""

    runs: dict[Place, list[Result]] = field(default_factory=dict)

    def ratio(self, name: str, over: Place, under: Place, under_name: str = "") -> Measured | None:
        """Return one cell's metric over another's, with its interval over pairs of runs; None without a pair."""
        pairs = [
            (a, b)
            for x in self.runs.get(over, ())
            for y in self.runs.get(under, ())
            if x.trial.replicate == y.trial.replicate
            and (a := figure(x, name) or 0.0) > 0
            and (b := figure(y, under_name or name) or 0.0) > 0
        ]
        if not pairs:
            return None
        return paired_log_ratio([a for a, _ in pairs], [b for _, b in pairs]).measured("ratio")

    def of(self, *keys: Place) -> list[Any]:
        """Return the runs of some cells."""
        return [run for key in keys for run in self.runs.get(key, ())]


def figure(result: Result, name: str) -> float | None:
    """Return a metric's value as stored, or None if it was not measured."""
    found = result.metrics.get(name)
    return found.value if isinstance(found, Measured) else None


def table(results: Iterable[Result]) -> Cells:
    """Return the finished runs by cell."""
    found: dict[Place, list[Result]] = {}
    for result in sorted(results, key=lambda r: r.trial.replicate):
        if result.status in GOOD:
            found.setdefault(place(result.trial), []).append(result)
    return Cells(found)


def wanted(trial: Trial, models: Sequence[str] = (), **_: object) -> bool:
    """Return whether a stored trial belongs to the study's grid."""
    return belongs(trial)


def content(
    paper: Paper,
    results: Iterable[Result],
    *,
    models: tuple[str, ...] = (),
    device: str = "cpu",
    left_out: int = 0,
    **_: object,
) -> Content:
    """Return what the study's page says; `left_out` results have no place in it."""
    found = list(results)
    measured = table(found)
    nothing = "" if measured.runs else f"no cell of the study is in this store: {paper.measure}"
    entries = list(_entries(measured))
    answered = boards.answered(paper, measured, boards.alone(found, entries), nothing)
    return Content(
        title=paper.heading + where(found[0].machine if found else None),
        answer=_answer(paper, measured, answered, left_out),
        rows={"cells": [_reading(paper, key, runs) for key, runs in sorted(measured.runs.items())]},
        lines={
            "failed": reasons(found, lambda trial: _words(place(trial))),
            "lacking": _lacking(found, device, models),
        },
        claims=answered,
        data={"claims": claim.plain(answered)},
        entries=entries,
    )


def _lacking(found: Sequence[Result], device: str, models: tuple[str, ...]) -> list[str]:
    """Return how many cells of the grid nobody has tried on these devices, and what goes on with them."""
    known = {place(result.trial) for result in found}
    devices = {key.device for key in known} or {device}
    planned = {place(trial) for each in devices for trial in trials(each, models)}
    if not (left := len(planned - known)):
        return []
    return [f"{left} of {len(planned)} cells are not tried yet: the same command with --run goes on"]


def _entries(table: Cells) -> Iterator[Entry]:
    """Yield the usual cell of each network, with its epoch's seconds and joules."""
    counts = {network.model: network.count for network in networks()}
    for key in _usual_ones(table):
        runs = table.runs[key]
        trial = runs[0].trial
        samples = int(trial.workload_options.get("epoch_samples") or counts[key.model])
        joules = across(runs, boards.ENERGY)
        epoch = scaled(joules, samples) if isinstance(joules, Measured) else joules
        how = f"{trial.backend} {trial.precision} on {trial.device}"
        more = {LATER: spread([figure(run, LATER) for run in runs], "s"), "epoch_j": epoch}
        yield boards.entry(f"{key.model}, {samples} samples", how, runs, more)


def _answer(paper: Paper, measured: Cells, answered: Sequence[claim.Answered], left_out: int) -> doc.Answer:
    if not measured.runs:
        why = f"No finished cell of the study is in this store. Measure: {paper.measure}"
        return doc.Answer("Nothing to judge the claims by", "", (why,), why, kind="none")
    runs = sum(map(len, measured.runs.values()))
    text = f"{runs} runs of {len(measured.runs)} cells; {left_out} other results are left out."
    holds = sum(each.found.answer is Answer.HOLDS for each in answered)
    tiles = (doc.Tile("Cells", len(measured.runs)), doc.Tile("Claims that hold", holds))
    reason = f"{text} {claim.tally(answered, why=True)}."
    return doc.Answer("Claims", claim.tally(answered), (text,), reason, tiles)


def _reading(paper: Paper, key: Place, runs: Sequence[Result]) -> Reading:
    """Return a cell with each figure's mean over its runs, and its parts of a step in milliseconds a sample."""
    figures = {name: spread([figure(run, name) for run in runs], unit) for unit, name in _figures(paper)}
    parts = {part: _per_sample(figures[f"{part}_s"], key.batch) for part in paper.page["parts"]}
    return {**key._asdict(), "cell": _words(key), "runs": len(runs), **figures, **parts}


def _figures(paper: Paper) -> Iterator[tuple[str, str]]:
    """Yield the unit and the name of each figure of a cell."""
    yield from ((unit, name) for unit, names in paper.page["figures"].items() for name in names)


def _per_sample(step: Field, batch: int) -> float | None:
    return step.value * 1e3 / batch if isinstance(step, Measured) else None


def _words(key: Place) -> str:
    more = "".join(f", {each}" for each in (key.medium, key.mode) if each != "as_is")
    return f"{key.model}, {key.workers} workers, batch {key.batch}{more}, {key.device}"


# -- how the takeaways are judged: ratios of epoch times over pairs of runs -----------------------------------


SAME = 1.05
"""Epochs whose ratio lies within this factor take as long."""
VARIES = 0.05
"""Largest coefficient of variation over runs that counts as little."""
FEW = 3
FIRST, LATER = "epoch_first_s", "epoch_later_s"
MISSING = "edgescope train characterize measures its cells"


def _over(
    table: Cells,
    words: str,
    name: str,
    over: Place,
    under: Place,
    *,
    rises: bool = True,
    under_name: str = "",
) -> Voice | None:
    ratio = table.ratio(name, over, under, under_name)
    if ratio is None:
        return None
    return held(ratio, (f"{over.model}, {words}: ", ""), table.of(over, under), rises=rises)


def _same(table: Cells, words: str, name: str, over: Place, under: Place) -> Voice | None:
    """Return the voice of two cells that should take as long."""
    ratio = table.ratio(name, over, under)
    if ratio is None:
        return None
    known = ratio.lo is not None and ratio.hi is not None
    inside = known and float(ratio.lo or 0) >= 1 / SAME and float(ratio.hi or 0) <= SAME
    apart = known and (float(ratio.lo or 0) > SAME or float(ratio.hi or 0) < 1 / SAME)
    bounds = f" [{ratio.lo:.3g}, {ratio.hi:.3g}]" if known else " (no interval)"
    text = f"{over.model}, {words}: {ratio.value:.3g}x{bounds}"
    return Voice(True if inside else False if apart else None, text, table.of(over, under), ratio.value)


def _usual_ones(table: Cells) -> Iterator[Place]:
    """Yield the usual cell of each network that was measured."""
    protocol = papers()[NAME].page["protocol"]
    usual = (protocol["workers"], protocol["batch"], "as_is", "as_is")
    for network in networks():
        found = [key for key in table.runs if key.model == network.model and key[1:5] == usual]
        yield from sorted(found)


def _pipelining(table: Cells) -> Iterator[Voice | None]:
    for key in _usual_ones(table):
        none, one = key._replace(workers=0), key._replace(workers=1)
        yield _over(table, "no worker over one", LATER, none, one)


def _enough(table: Cells) -> Iterator[Voice | None]:
    for key in _usual_ones(table):
        waits = [s for run in table.of(key) if (s := figure(run, "stall_share")) is not None]
        if waits and float(np.mean(waits)) < VARIES:
            yield _same(table, "four workers over two", LATER, key._replace(workers=4), key)


def _first(table: Cells) -> Iterator[Voice | None]:
    for network in networks():
        for key in table.runs:
            if key.model == network.model and not network.packed and key.medium == "as_is":
                words = f"first epoch over later ones, {key.workers} workers, batch {key.batch}"
                yield _over(table, words, FIRST, key, key, under_name=LATER)


def _media(table: Cells) -> Iterator[tuple[str, Place, Place]]:
    for key in table.runs:
        if key.medium in ("sd", "hdd"):
            yield key.medium, key, key._replace(medium="nvme")


def _medium_cold(table: Cells) -> Iterator[Voice | None]:
    for name, slow, fast in _media(table):
        yield _over(table, f"first epoch, {name} over nvme (emulated)", FIRST, slow, fast)


def _medium_warm(table: Cells) -> Iterator[Voice | None]:
    for name, slow, fast in _media(table):
        yield _same(table, f"later epochs, {name} over nvme (emulated)", LATER, slow, fast)


def _batch(table: Cells) -> Iterator[Voice | None]:
    for key in _usual_ones(table):
        yield _over(table, "batch 4 over 16", LATER, key._replace(batch=4), key)


def _cores(table: Cells) -> Iterator[Voice | None]:
    for key in _usual_ones(table):
        yield _over(table, "one CPU over all", LATER, key._replace(mode="cpus=0"), key)


def _modes(table: Cells) -> Iterator[Voice | None]:
    """Yield whether a network's fastest mode takes more energy than another of this machine's modes."""
    for key in _usual_ones(table):
        rates = {k: (_mean(table, k, LATER), _mean(table, k, boards.ENERGY)) for k in _in_modes(table, key)}
        known = {k: (s, j) for k, (s, j) in rates.items() if s is not None and j is not None}
        if len(known) < 2:
            continue
        fast, least = min(known, key=lambda k: known[k][0]), min(known, key=lambda k: known[k][1])
        named = f"{key.model}: the fastest of {len(known)} modes, {fast.mode}"
        if fast == least:
            yield Voice(False, f"{named}, is that of least energy", table.of(fast))
        elif isinstance(ratio := table.ratio(boards.ENERGY, fast, least), Measured):
            yield held(ratio, (f"{named}, takes ", f" of the energy of {least.mode}"), table.of(fast, least))


def _in_modes(table: Cells, key: Place) -> list[Place]:
    return [other for other in table.runs if other._replace(mode=key.mode) == key]


def _mean(table: Cells, key: Place, name: str) -> float | None:
    found = [value for run in table.of(key) if (value := figure(run, name)) is not None]
    return float(np.mean(found)) if found else None


def _variability(table: Cells) -> Iterator[Voice | None]:
    for key in _usual_ones(table):
        times = [t for run in table.of(key) if (t := figure(run, LATER)) is not None]
        if len(times) >= FEW:
            varies = float(np.std(times, ddof=1) / np.mean(times))
            text = f"{key.model}: {varies:.1%} over {len(times)} runs"
            yield Voice(varies <= VARIES, text, table.of(key), varies)


pipelining = Claim(_pipelining, MISSING, "epoch without a worker over one with")
enough_workers = Claim(
    _enough, "no network here runs with two workers and hardly waits", "four workers over two"
)
first_epoch = Claim(_first, MISSING, "first epoch over later ones")
medium_cold = Claim(_medium_cold, MISSING, "slow medium over NVMe")
medium_warm = Claim(_medium_warm, MISSING, "slow medium over NVMe")
batch = Claim(_batch, MISSING, "batch 4 over 16")
cores = Claim(_cores, "the cells with fewer CPUs were not measured", "one CPU over all")
modes = Claim(_modes, "no network ran in two modes with a power sensor: --mode all on a board", often=True)
variability = Claim(_variability, "fewer than three runs of a cell")
