"""What the ladder's page says: what it comes to, each level, what limits the top, the study's numbers beside ours."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

from edgescope import units
from edgescope.records import Absent, Field, Json, Measured, Result, Trial
from edgescope.records.answers import plain
from edgescope.report import document as doc
from edgescope.report.document import Cell, Mark
from edgescope.stats import Interval
from edgescope.stats.pairs import paired_log_ratio
from edgescope.wings.studies import boards, claim
from edgescope.wings.studies.boards import Entry
from edgescope.wings.studies.claim import Claim, Found, Voice, held
from edgescope.wings.studies.page import Content, Reading, of_trial, reasons, where
from edgescope.wings.studies.paper import Paper
from edgescope.wings.studies.video_ladder import climb, networks
from edgescope.wings.studies.video_ladder.climb import Climbed, Rung

MODELS = {"cpu": "centerface", "cuda": "ssd300"}
"""The detector of each device: the study's on a GPU, the one with real weights on a CPU."""
NAME = "ladder"
STAGES = ("decode", "preprocess", "infer", "postprocess")
RATIOS = ("gain", "over_baseline", *(f"{name}_free_gain" for name in STAGES))
"""What a program reads with its interval."""
WIDE = 20.0
"""Ratio of the longest bar to the shortest beyond which bars show shares."""


def models() -> tuple[str, ...]:
    """Return the detectors of the ladder."""
    return tuple(MODELS.values())


def wanted(trial: Trial, models: tuple[str, ...] = (), *, device: str = "cpu", **_: object) -> bool:
    """Return whether a stored trial may belong to the ladder of a device."""
    named = trial.model.partition("#")[0]
    mine = trial.device == device and named in (models or (MODELS[device],))
    return mine or networks.wanted(trial, device)


def content(
    paper: Paper,
    results: Iterable[Result],
    *,
    models: tuple[str, ...] = (),
    device: str = "cpu",
    source: str = "",
    left_out: int = 0,
) -> Content:
    """Return what the page says; `left_out` results have no place in it."""
    found = {result.trial.id: result for result in results}
    model = next(iter(models), MODELS[device])
    pinned = next((m for r in found.values() if (m := r.trial.model).partition("#")[0] == model), model)
    films = {
        str(r.trial.workload_options.get("source", ""))
        for r in found.values()
        if "postprocess" in r.trial.workload_options
    }
    film = next((f for f in sorted(films) if ":" not in f and (not source or f.startswith(source))), source)
    machine = next((r.machine for r in found.values()), None)
    steps = climb.levels(paper, device, jetson=climb.is_jetson(machine))
    climbed = climb.climb(steps, pinned, device, film, lambda trial: found.get(trial.id))
    return told(paper, climbed, model, device, networks.networks(found.values(), device))


def told(
    paper: Paper, found: Climbed, model: str, device: str, pairs: Sequence[networks.Network] = ()
) -> Content:
    """Return what the page says of a ladder, and of the networks that ran in two precisions."""
    ladder, entries = Ladder(found, tuple(pairs)), list(_entries(found, model))
    answered = boards.answered(paper, ladder, boards.alone(_results(found, pairs), entries))
    machine = where(next((r.machine for r in _results(found, pairs)), None))
    measured = [rung for rung in found.rungs if rung.good]
    if not measured:
        none = f"No level of the ladder of {model} on {device} is in this store. Measure: {paper.measure}"
        answer = doc.Answer("Nothing measured", "", (none,), none, kind="none")
        rows: dict[str, Sequence[Reading]] = dict.fromkeys(("levels", "measured", "bars"), ())
        rows |= {"networks": networks.readings(pairs)}
        data = {"levels": [], "claims": claim.plain(answered)}
        lines = {"failed": reasons(_results(found, pairs), of_trial)}
        return Content(f"{paper.heading}{machine}", answer, rows, lines, claims=answered, data=data)
    bars, shares = _bars(measured)
    return Content(
        title=f"{paper.heading}: {model}{machine}",
        answer=_answer(found),
        rows={
            "levels": [_reading(found, rung) for rung in found.rungs],
            "measured": [_reading(found, rung) for rung in measured],
            "bars": bars,
            "networks": networks.readings(pairs),
        },
        lines={"notes": list(notes(found)), "stages": STAGES, "failed": ()},
        own={"samples": _samples(found)},
        words={"scale": "% of a frame's time, stage after stage" if shares else "milliseconds a frame"},
        claims=answered,
        data={"levels": records(found), "claims": claim.plain(answered)},
        entries=entries,
        printed=_as_printed(found, model),
    )


@dataclass(frozen=True)
class Ladder:
    """What the claims are judged by."""

    climbed: Climbed
    pairs: tuple[networks.Network, ...] = ()

    def steps(self, titles: Sequence[str]) -> Iterator[tuple[Rung, Field]]:
        """Yield each measured level of these titles with its gain over the level that it is compared with."""
        for rung in self.climbed.rungs:
            if rung.level.title in titles and rung.good and rung.look:
                yield rung, gain(self.climbed, rung, below(self.climbed, rung))


def _results(found: Climbed, pairs: Iterable[networks.Network]) -> list[Result]:
    looks = [rung.look for rung in found.rungs if rung.look]
    return [*looks, *(r for pair in pairs for r in pair.full)]


def _entries(found: Climbed, model: str) -> Iterator[Entry]:
    """Yield the top of the ladder, with what it gained over the first level."""
    kept = found.kept
    look = kept[-1].look if kept else None
    if look is None:
        return
    top, first = kept[-1], found.rungs[0]
    runs = top.rounds or [look]
    more = {boards.RATE: fps(top), "first_fps": fps(first), "gain": gain(found, top, first)}
    yield boards.entry(model, f"{len(kept)} levels, {top.level.title} at last", runs, more)


def _as_printed(found: Climbed, model: str) -> list[tuple[str, Entry]]:
    """Return the best level of each board as the study printed it, and its first."""
    shown = []
    for board in climb.BOARDS:
        known = [rung.level.printed[board] for rung in found.rungs if board in rung.level.printed]
        if known:
            rates = {boards.RATE: max(known), "first_fps": known[0]}
            figures: dict[str, Field] = {name: Measured(rate, "frames/s") for name, rate in rates.items()}
            figures["gain"] = Measured(max(known) / known[0], "ratio")
            shown.append((board, Entry(model, "", figures)))
    return shown


# -- how the claims are judged -------------------------------------------------------------------------------


RISING, REDUCED = ("outputs copied once", "vectorised", "batches"), ("reduced precision",)
STEPS_MISSING = "the rounds of these levels were not measured"


def _step(found: Ladder, titles: Sequence[str], *, rises: bool) -> Iterator[Voice | None]:
    for rung, ratio in found.steps(titles):
        assert rung.look is not None
        rows = [boards.Entry("", "", {}, (rung.look,)).row]
        yield held(ratio, (f"{rung.level.title}: ", " of the level before"), rows, rises=rises)


levels = Claim[Ladder](partial(_step, titles=RISING, rises=True), STEPS_MISSING, "gain of a level", "levels")
reduced = Claim[Ladder](partial(_step, titles=REDUCED, rises=False), STEPS_MISSING, "gain", "level")
fp16_networks = Claim[Ladder](
    lambda found: networks.slower(found.pairs), networks.MISSING, "fp16 over fp32", "networks", often=True
)


def fp16_depends(found: Ladder) -> Found:
    """Return whether what fp16 changes depends on the network."""
    return networks.depends(found.pairs)


# -- figures of a level --------------------------------------------------------------------------------------


def gain(found: Climbed, rung: Rung, over: Rung | None) -> Field:
    """Return the frame rate of a level over another's, from rounds of fresh processes."""
    if over is None or not rung.good:
        return Absent("there is nothing to compare it with")
    pairs = list(zip(rung.fps, over.fps, strict=False))
    if not pairs:
        return Absent("the rounds were not measured")
    ratio: Interval = paired_log_ratio([a for a, _ in pairs], [b for _, b in pairs])
    return ratio.measured("ratio")


def below(found: Climbed, rung: Rung) -> Rung | None:
    """Return the level that a level is compared with."""
    return None if rung.over is None else found.rungs[rung.over]


def fps(rung: Rung) -> Field:
    """Return a level's frames per second: the median of its rounds."""
    if rung.level.stays:
        return Absent(rung.level.stays)
    if not rung.good:
        return Absent(str(rung.look.reason) if rung.look else "not measured")
    look = climb.rate_of(rung.look) if rung.look else None
    rates = sorted(rung.fps) or ([] if look is None else [look])
    if not rates:
        return Absent("it has no throughput")
    low, high = (rates[0], rates[-1]) if len(rates) > 1 else (None, None)
    return Measured(rates[len(rates) // 2], "frames/s", low, high, len(rates))


def metric(rung: Rung, name: str) -> Field:
    """Return a figure of a level's first look."""
    return rung.look.metrics.get(name, Absent("not measured")) if rung.look else Absent("not measured")


def limit(rung: Rung) -> tuple[str, Measured] | None:
    """Return the stage whose being free would gain most, and the gain."""
    gains = [(name, metric(rung, f"{name}_free_gain")) for name in STAGES]
    known = [(name, field) for name, field in gains if isinstance(field, Measured)]
    return max(known, key=lambda pair: pair[1].value, default=None)


def line(found: Climbed, rung: Rung) -> str:
    """Return a level in one line."""
    head = f"{rung.level.number} {rung.level.title}: "
    if rung.level.stays:
        return f"{head}no change here ({rung.level.stays})"
    rate = fps(rung)
    if not isinstance(rate, Measured):
        return f"{head}did not run ({rate.reason})"
    over = gain(found, rung, below(found, rung))
    step = f", {units.ratio(over)} the level before" if isinstance(over, Measured) else ""
    return f"{head}{rate.value:.3g} frames/s{step}{'' if rung.kept else ' (not kept)'}"


def _reading(found: Climbed, rung: Rung) -> Reading:
    """Return a level as a row."""
    level, trial, first = rung.level, rung.trial, found.rungs[0]
    gained = gain(found, rung, first)
    fields = {
        "fps": fps(rung),
        "gain": gain(found, rung, below(found, rung)),
        "over_baseline": gained,
        "over_first": Absent("it is the first") if rung is first else gained,
        "agreement": _agreement(rung),
        "energy_per_frame_j": metric(rung, "energy_per_sample_j"),
        "alone": metric(rung, "infer_alone_fps") if rung.good else Absent("it did not run"),
        **{f"{stage}_{what}": metric(rung, f"{stage}_{what}") for what in FIGURES for stage in STAGES},
        **{board: _printed(rung, board) for board in climb.BOARDS},
    }
    name = f"{level.number} {level.title}"
    change = Cell(Mark(trial.label, "code") if trial else level.stays)
    return {"level": name, "says": level.says, "change": change, "look": "" if rung.kept else "dim", **fields}


FIGURES = ("s", "device_s", "alone_fps", "free_gain")
"""What a level has of each stage."""
READ = ("fps", "gain", "over_baseline", "agreement", "energy_per_frame_j")


def records(found: Climbed) -> list[dict[str, Json]]:
    """Return one row for each level."""
    rows: list[dict[str, Json]] = []
    for rung in found.rungs:
        row, trial = _reading(found, rung), rung.trial
        names = (*READ, *(f"{stage}_{what}" for what in FIGURES for stage in STAGES))
        rows.append(
            {
                "level": rung.level.number,
                "title": rung.level.title,
                "trial": trial.label if trial else "",
                "kept": rung.kept,
                **{name: _ends(row[name]) if name in RATIOS else plain(row[name]) for name in names},
                **{f"{board}_fps": rate for board, rate in rung.level.printed.items()},
            }
        )
    return rows


def _ends(field: Field) -> Json:
    return [field.value, field.lo, field.hi] if isinstance(field, Measured) else None


def _agreement(rung: Rung) -> Field:
    check = rung.look.verification if rung.look else None
    return check.fields.get("frame_agreement", Absent("not checked")) if check else Absent("not checked")


def _printed(rung: Rung, board: str) -> Field:
    value = rung.level.printed.get(board)
    return Absent("not printed") if value is None else Measured(value, "frames/s")


# -- the answer ----------------------------------------------------------------------------------------------


def _answer(found: Climbed) -> doc.Answer:
    first, top = found.rungs[0], found.kept[-1]
    whole, rate, start = gain(found, top, first), fps(top), fps(first)
    pick = f"{units.show(start, interval=False)} to {units.show(rate, interval=False)}"
    sure = (
        f"{units.ratio(whole)} the first level"
        if isinstance(whole, Measured)
        else "the rounds that give the whole gain are missing"
    )
    short = [sure]
    if ceiling := _ceiling(found):
        short.append(ceiling)
    if held := limit(top):
        name, field = held
        short.append(f"what limits it: {name}; free, it would gain {units.ratio(field)}")
    losing = [r.level.title for r in found.rungs if r.good and not r.kept]
    if losing:
        short.append(f"lost and were left out: {', '.join(losing)}")
    tiles = (
        doc.Tile("Over the first level", whole if isinstance(whole, Measured) else "not yet"),
        doc.Tile("Frames per second", rate),
        doc.Tile("Batch at which inference stops gaining", found.knee if found.knee else "not measured"),
    )
    reason = ". ".join(line[0].upper() + line[1:] for line in short)
    return doc.Answer("The top of the ladder", pick, tuple(short), reason, tiles)


def _ceiling(found: Climbed) -> str:
    """Return what share of its slowest stage's own rate the top reaches, in words."""
    top = found.kept[-1]
    alone = {
        name: field.value
        for name in STAGES
        if isinstance(field := metric(top, f"{name}_alone_fps"), Measured) and field.value > 0
    }
    whole = metric(top, "pipeline_fps")
    if not alone or not isinstance(whole, Measured):
        return ""
    name = min(alone, key=alone.__getitem__)
    return f"{whole.value / alone[name]:.0%} of what its slowest stage, {name}, does alone ({alone[name]:.3g} frames/s)"


def notes(found: Climbed) -> Iterable[str]:
    """Yield what the levels show beyond their figures."""
    if found.batches:
        rates = ", ".join(f"{batch}: {rate:.4g}" for batch, rate in found.batches.items())
        yield f"inference alone, samples/s by batch: {rates}; it stops gaining at batch {found.knee}"
    for rung in found.rungs:
        if rung.level.stays:
            yield f"{rung.level.title}: no change here, {rung.level.stays}"
        elif not rung.good:
            yield f"{rung.level.title}: {rung.look.reason if rung.look else 'not measured'}"
        elif not rung.kept:
            yield f"{rung.level.title} loses here, so the next levels do without it"


def _samples(found: Climbed) -> doc.Section | None:
    """Return a few frames with the boxes that the top level finds, if its result holds some."""
    top = found.kept[-1].look
    shown: Any = top.artifact.get("samples") if top else None
    if not shown:
        return None
    pictures = doc.Pictures(tuple((str(uri), str(caption)) for uri, caption in shown))
    return doc.Section("What the top level finds", (pictures,), level=doc.PAGE)


# -- the bars ------------------------------------------------------------------------------------------------


def _bars(rungs: list[Rung]) -> tuple[list[Reading], bool]:
    """Return one bar for each level with a frame's stages in it and the time at full rate; and if they are shares.

    A second bar has what of it a device was busy with. Where the longest bar would hide the others, every bar is as
    long, and its stages are shares of the frame's time.
    """
    whole = [sum(_stage_ms(rung, stage) or 0.0 for stage in STAGES) for rung in rungs]
    shares = min(whole, default=0.0) > 0 and max(whole) > WIDE * min(whole)
    bars: list[Reading] = []
    for rung, all_ms in zip(rungs, whole, strict=True):
        name = f"{rung.level.number} {rung.level.title}"
        rate = fps(rung)
        full = 1e3 / rate.value if isinstance(rate, Measured) and not shares else None
        scale = 100 / all_ms if shares else 1.0
        bars.append(
            {"bar": f"{name}, {all_ms:.3g} ms" if shares else name, "full": full} | _drawn(rung, "s", scale)
        )
        if any(_stage_ms(rung, stage, "device_s") for stage in STAGES):
            bars.append({"bar": f"{rung.level.number} on the device"} | _drawn(rung, "device_s", scale))
    return bars, shares


def _drawn(rung: Rung, kind: str, scale: float) -> dict[str, Any]:
    """Return the milliseconds of each stage, and how long its part of the bar is."""
    found = {stage: _stage_ms(rung, stage, kind) for stage in STAGES}
    shown = {stage: ms * scale if ms is not None else None for stage, ms in found.items()}
    return {f"{stage}_ms": ms for stage, ms in found.items()} | shown


def _stage_ms(rung: Rung, stage: str, kind: str = "s") -> float | None:
    """Return the milliseconds of a stage for one frame: of the host, or with `device_s` of the device."""
    field = metric(rung, f"{stage}_{kind}")
    assert rung.trial is not None
    return field.value * 1e3 / rung.trial.batch if isinstance(field, Measured) else None
