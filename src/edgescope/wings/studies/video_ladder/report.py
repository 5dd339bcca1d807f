"""The ladder as a document: what it comes to, each level, what limits the top, and the study's numbers beside ours."""

from __future__ import annotations

from collections.abc import Iterable
from functools import partial
from typing import Any

from edgescope import units
from edgescope.analysis.cells.machines import called
from edgescope.records import Absent, Field, Json, Measured, Result, Trial
from edgescope.records.answers import plain
from edgescope.report import document as doc
from edgescope.report.document import DETAIL, MAIN, Cell, Column, Items, Mark, Row, Table, Text
from edgescope.stats import Interval
from edgescope.stats.pairs import paired_log_ratio
from edgescope.wings.studies.paper import Paper
from edgescope.wings.studies.video_ladder import climb
from edgescope.wings.studies.video_ladder.climb import Climbed, Rung

MODELS = {"cpu": "centerface", "cuda": "ssd300"}
"""The detector of each device: the study's on a GPU, the one with real weights on a CPU."""
NAME = "ladder"
STAGES = ("decode", "preprocess", "infer", "postprocess")
FIGURE = (
    "Each bar is one frame at one level, stage after stage, each waited for. Where stages overlap, the frame takes "
    "longer than the pipeline needs for it: the diamonds show the time per frame at its full rate. A level on a GPU "
    "has a second bar: how long the GPU took for each stage, by its own events. Where one level "
    "takes twenty times as long as another, the bars are equally long and show each stage's share."
)

RATES = (
    "Each step is a level at its full rate; an open ring is the rate of the network alone in the same run. The study's "
    "board and the article's desktop stand beside it. The axis is logarithmic: equal steps are equal gains."
)


def models() -> tuple[str, ...]:
    """Return the detectors of the ladder."""
    return tuple(MODELS.values())


def wanted(trial: Trial, models: tuple[str, ...] = (), *, device: str = "cpu", **_: object) -> bool:
    """Return whether a stored trial may belong to the ladder of a device."""
    named = trial.model.partition("#")[0]
    return trial.device == device and named in (models or (MODELS[device],))


def document(
    paper: Paper,
    results: Iterable[Result],
    *,
    models: tuple[str, ...] = (),
    device: str = "cpu",
    source: str = "",
    left_out: int = 0,
    command: str = "",
) -> doc.Document:
    """Return the whole answer; `left_out` results have no place in it."""
    found = {result.trial.id: result for result in results}
    model = next(iter(models), MODELS[device])
    pinned = next((r.trial.model for r in found.values()), model)
    films = {
        str(r.trial.workload_options.get("source", ""))
        for r in found.values()
        if "postprocess" in r.trial.workload_options
    }
    film = next((f for f in sorted(films) if ":" not in f and (not source or f.startswith(source))), source)
    steps = climb.levels(paper, device)
    climbed = climb.climb(steps, pinned, device, film, lambda trial: found.get(trial.id))
    return of(paper, climbed, model, device, command)


def of(paper: Paper, found: Climbed, model: str, device: str, command: str = "") -> doc.Document:
    """Return a ladder as a document."""
    machine = next((rung.look.machine for rung in found.rungs if rung.look), None)
    where = f" on {called(machine)}" if machine else ""
    measured = [rung for rung in found.rungs if rung.good]
    if not measured:
        none = f"No level of the ladder of {model} on {device} is in this store. Measure: {paper.measure}"
        answer = doc.Answer("Nothing measured", "", (none,), none, kind="none")
        return doc.Document(f"{paper.heading}{where}", (answer,), {"levels": []}, command)
    parts = (
        _answer(found),
        doc.Figure(
            "waterfall",
            "Where a frame's time goes, level by level",
            FIGURE,
            partial(_drawn, found, "waterfall"),
        ),
        doc.Figure("rates", "Frames per second, level by level", RATES, partial(_drawn, found, "rates")),
        _levels(found),
        _samples(found),
        _stages(found),
        Items(tuple(notes(found)), "What the levels say", "plain", DETAIL),
        Text("-v shows what each stage costs and what each level changes", "lead", doc.BRIEF),
        _changes(found),
    )
    return doc.Document(f"{paper.heading}: {model}{where}", parts, {"levels": records(found)}, command)


def _drawn(found: Climbed, name: str) -> Any:
    from edgescope.wings.studies.video_ladder import figures  # only a page needs plotly

    return getattr(figures, name)(found)


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


def records(found: Climbed) -> list[dict[str, Json]]:
    """Return one row for each level."""
    first = found.rungs[0] if found.rungs else None
    rows: list[dict[str, Json]] = []
    for rung in found.rungs:
        rows.append(
            {
                "level": rung.level.number,
                "title": rung.level.title,
                "trial": rung.trial.label if rung.trial else "",
                "fps": plain(fps(rung)),
                "gain": _ends(gain(found, rung, below(found, rung))),
                "over_baseline": _ends(gain(found, rung, first)),
                "kept": rung.kept,
                "agreement": plain(_agreement(rung)),
                "energy_per_frame_j": plain(metric(rung, "energy_per_sample_j")),
                **{f"{name}_s": plain(metric(rung, f"{name}_s")) for name in STAGES},
                **{f"{name}_device_s": plain(metric(rung, f"{name}_device_s")) for name in STAGES},
                **{f"{name}_alone_fps": plain(metric(rung, f"{name}_alone_fps")) for name in STAGES},
                **{f"{name}_free_gain": _ends(metric(rung, f"{name}_free_gain")) for name in STAGES},
                **{f"{board}_fps": rate for board, rate in rung.level.printed.items()},
            }
        )
    return rows


def _ends(field: Field) -> Json:
    return [field.value, field.lo, field.hi] if isinstance(field, Measured) else None


def _agreement(rung: Rung) -> Field:
    check = rung.look.verification if rung.look else None
    return check.fields.get("frame_agreement", Absent("not checked")) if check else Absent("not checked")


# -- the parts -----------------------------------------------------------------------------------------------


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


def _levels(found: Climbed) -> Table:
    first = found.rungs[0]
    columns = (
        Column("Level", head="level"),
        Column("Frames per second", "frames/s", "fps", "frames/s"),
        Column("Over the level before", "ratio", "gain", "gain"),
        Column("Over the first level", "ratio", "over_baseline", "in all"),
        Column("Same detections", "1", "agreement", "same", rank=1),
        Column("Energy per frame", "J", "energy", "energy", rank=2),
        Column("Study, Nano", "frames/s", "nano_fps", "Nano", rank=3),
        Column("Article, desktop", "frames/s", "desktop_fps", "desktop", rank=4),
    )
    rows = [
        Row(
            (
                f"{rung.level.number} {rung.level.title}",
                fps(rung),
                gain(found, rung, below(found, rung)),
                gain(found, rung, first) if rung is not first else Absent("it is the first"),
                _agreement(rung),
                metric(rung, "energy_per_sample_j"),
                *(_printed(rung, board) for board in climb.BOARDS),
            ),
            "" if rung.kept else "dim",
        )
        for rung in found.rungs
    ]
    return Table(columns, tuple(rows), "The levels", level=MAIN)


def _printed(rung: Rung, board: str) -> Field:
    value = rung.level.printed.get(board)
    return Absent("not printed") if value is None else Measured(value, "frames/s")


def _stages(found: Climbed) -> Table:
    columns = (
        Column("Level", head="level"),
        *(Column(f"{name.capitalize()}, alone", "frames/s", f"{name}_alone_fps", name) for name in STAGES),
        *(
            Column(f"If {name} were free", "ratio", f"{name}_free_gain", f"{name} free", rank=1)
            for name in STAGES
        ),
    )
    rows = [
        Row(
            (
                f"{rung.level.number} {rung.level.title}",
                *(metric(rung, f"{name}_alone_fps") for name in STAGES),
                *(metric(rung, f"{name}_free_gain") for name in STAGES),
            )
        )
        for rung in found.rungs
        if rung.good
    ]
    lead = "What each stage does alone, all others stubbed, and what the pipeline would gain if the stage were free."
    return Table(columns, tuple(rows), "What each stage costs", lead, DETAIL)


def _samples(found: Climbed) -> doc.Section | None:
    """Return a few frames with the boxes that the top level finds, if its result holds some."""
    top = found.kept[-1].look
    shown: Any = top.artifact.get("samples") if top else None
    if not shown:
        return None
    pictures = doc.Pictures(tuple((str(uri), str(caption)) for uri, caption in shown))
    return doc.Section("What the top level finds", (pictures,), level=doc.PAGE)


def _changes(found: Climbed) -> Table:
    columns = (Column("Level"), Column("What it does"), Column("The trial"))
    rows = [
        Row(
            (
                f"{rung.level.number} {rung.level.title}",
                rung.level.says,
                Cell(Mark(rung.trial.label, "code") if rung.trial else rung.level.stays),
            )
        )
        for rung in found.rungs
    ]
    return Table(columns, tuple(rows), "What each level changes", level=DETAIL)
