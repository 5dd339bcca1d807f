"""The documents of results: the card of one result, the summary of several processes, a listing."""

from __future__ import annotations

import math
import re
from collections.abc import Iterator, Mapping, Sequence

from edgescope import metrics, registry, units
from edgescope.analysis.cells import ids
from edgescope.analysis.run.energy import ends
from edgescope.analysis.run.usage import first
from edgescope.analysis.run.workers import Share, shares
from edgescope.metrics import METRICS
from edgescope.records import UNIT, Absent, Field, Json, Measured, Result, Status, Trial, Trust
from edgescope.report import chapter
from edgescope.report import document as doc
from edgescope.stats import reach
from edgescope.units import ranges, show, why

CELL = 8
"""Characters of a cell's id that a listing shows; `compare` takes them for all its replicates."""
VARIANT = 19
"""Characters of a variant that a narrow listing shows at least: `onnxruntime fp32 b1`."""
MODEL = 13
"""Characters of a model that a narrow listing shows at least."""
GOOD = (Status.OK, Status.WRONG_OUTPUT, Status.UNSTABLE)
Line = tuple[str, doc.Value | doc.Cell]


def document(result: Result) -> doc.Document:
    """Return the card of one result."""
    rows = tuple(line for line in _lines(result) if line[1] is not None)
    card = doc.Pairs((*rows, ("result", result.id)), kind="card")
    others = [w for w in result.warnings if w.code != chapter.AT_CHANCE]
    first = (*chapter.doubts([result]), _name(result), *_why_not(result))
    parts = (*first, card, *_tables(result), *doc.warnings(others))
    return doc.Document(result.trial.model, parts, whole="edgescope show latest")


def _why_not(result: Result) -> tuple[doc.Text, ...]:
    """Return why the status is not ok, before any figure: a hurried reader stops at the first lines."""
    return (doc.Text(doc.Mark(str(result.reason), "bad"), "strong"),) if result.reason else ()


def _name(result: Result) -> doc.Text:
    """Return the name of the card: model, label, load."""
    t = result.trial
    info = result.model
    trained = "" if info is None or info.trained else f"  ({info.weights}: no task accuracy)"
    load = f"  {t.scenario}" if t.scenario == Trial.scenario else ""
    return doc.Text(f"{t.model.partition('#')[0]}  {result.label}{load}{trained}", "strong")


def several(results: Sequence[Result]) -> doc.Document:
    """Return the summary of one cell's fresh processes: a row for each, and each one's card as a detail."""
    from edgescope.analysis.cells.replicates import MEASURED, across, percentiles

    done = [r for r in results if r.status in MEASURED]
    ended = {s: sum(r.status is s for r in results) for s in dict.fromkeys(r.status for r in results)}
    counts = "" if len(done) == len(results) else ": " + ", ".join(f"{n} {s.value}" for s, n in ended.items())
    figures = []
    if done:
        latency = percentiles(done)
        told = {"p50": latency["p50_s"], "p99": latency["p99_s"]}
        told["throughput"] = across(done, "throughput_sps")
        figures = [f"{name} {why(field)}" for name, field in told.items()]
    name = f"{results[0].trial.model}  {results[0].label}"
    lead = f"{len(done)} of {len(results)} processes measured{counts}"
    answer = doc.Answer(
        "Measured" if done else "Not measured", name, (lead, *figures), kind="" if done else "none"
    )
    shown = columns_of(results)
    columns = (doc.Column("Process", head="process"), *shown, doc.Column("Verdict", head="verdict"))
    rows = tuple(
        doc.Row((f"#{r.trial.replicate} {ids.short_ids(results)[r.id]}", *_figures(r, shown), _verdict(r)))
        for r in results
    )
    cards = tuple(p for r in results for p in document(r).parts)
    return doc.Document(
        name, (answer, doc.Table(columns, rows), doc.Section("Each process", cards, level=doc.DETAIL))
    )


def status(result: Result) -> doc.Value:
    """Return the status with the verdict and its evidence."""
    return (*_ended(result), doc.Mark(f": {'; '.join(result.verdict.evidence)}", "dim"))


def _ended(result: Result) -> tuple[doc.Value, ...]:
    good = "good" if result.status is Status.OK else "bad"
    return doc.Mark(result.status.value, good), "  ", doc.badge(result.verdict.trust)


def _calm(result: Result) -> bool:
    """Return whether nothing needs an explanation: the evidence of such a run is for those who ask."""
    return result.status is Status.OK and result.verdict.trust is Trust.CLEAN


def detail(text: str) -> doc.Cell:
    """Return a cell that only -v shows."""
    return doc.Cell(text, brief="")


def _lines(result: Result) -> Iterator[Line]:
    """Yield the rows of a card; of a calm run without the evidence, which -v shows."""
    m, calm = result.metrics.get, _calm(result)
    yield "status", doc.Cell(status(result), brief=_ended(result) if calm else None)
    if result.status not in GOOD:
        return
    own = tuple(_own(result))
    yield from own
    yield "latency", _latency(result)
    if isinstance(m("latency_p99_s"), Measured) and (bound := m("latency_p99_bound_s")):
        yield "p99 bound", detail(_bound(bound))
    yield "throughput", detail(why(m("throughput_sps"))) if own else why(m("throughput_sps"))
    yield from workers(result)
    yield from load(result)
    yield from live(result)
    yield from _long_run(result)
    yield from _parts(result)
    yield from _marked(result)
    startup = [f"{k} {_brief(m(f'{k}_s'))}" for k in ("build", "load", "first")]
    started = "   ".join([startup[0] + _earlier(result), *startup[1:]])
    yield "startup", doc.Cell(started, brief="" if calm else None)
    yield "memory", _memory(result)
    yield from _consumed(result)
    if result.trial.idle_s:
        yield "idle", _idle(result)
    judged = _judged(result)
    passed = calm and result.verification is not None and result.verification.passed and judged
    yield "accuracy gate", doc.Cell(_gate(result), brief=f"passed: {judged}" if passed else None)
    yield "judged by", doc.Cell(judged, brief="" if passed else None) if judged else None
    yield "pictures", result.model.prepared if result.model and result.model.prepared else None
    yield "left out", chapter.unread(result.trial) or None
    if result.effective is not None:
        e = result.effective
        threads = "1 thread" if e.threads == 1 else f"{e.threads or 'default'} threads"
        ran = f"{e.precision} on {e.device}, {threads}"
        yield "engine", doc.Cell(f"{ran}; {e.evidence}", brief=ran if calm else None)
    yield "sampler", detail(_sampler(result))


def _gate(result: Result) -> doc.Value:
    check = result.verification
    if check is None:
        return doc.Mark(f"outputs not verified: {_unverified(result)}; this can never be a pick", "warn")
    return f"passed: {check.detail}" if check.passed else doc.Mark(f"FAILED: {check.detail}", "bad")


def _unverified(result: Result) -> str:
    if (why := result.unverified) is None:
        return "there is no fp32 reference to compare them with"
    return f"{why.what} ({why.evidence})" if why.evidence else why.what


def _judged(result: Result) -> str:
    """Return the measure that judged the outputs and its value: `top-1 91.2 % [88.9, 93.1]`; '' if none did."""
    check = result.verification
    if check is None or isinstance(found := check.figure(), Absent):
        return ""
    share = METRICS.get(check.method, METRICS["agreement"]).unit  # a user's function tells its unit itself
    return f"{metrics.judged_by(check.method)} {units.cell(found, share, interval=True)}"


def _brief(field: Field | None) -> str:
    return f"none ({field.reason})" if isinstance(field, Absent) else show(field, interval=False)


EARLIER_S = 60
"""Age of an artifact from which on it was hardly built for this run."""


def _earlier(result: Result) -> str:
    """Return how long before this run its artifact was built, '' if just before."""
    age = result.artifact.get("age_s")
    built = isinstance(result.metrics.get("build_s"), Measured)
    return (
        f" ({units.lasting(age)} earlier)"
        if built and isinstance(age, int | float) and age > EARLIER_S
        else ""
    )


def _known(field: Field | None) -> bool:
    return isinstance(field, Measured)


def _latency(result: Result) -> str:
    m = result.metrics.get
    if isinstance(m("latency_p50_s"), Absent):
        return why(m("latency_p50_s"))
    p50, p90 = show(m("latency_p50_s")), show(m("latency_p90_s"), interval=False)
    return f"p50 {p50}   p90 {p90}   p99 {why(m('latency_p99_s'))}"


def _own(result: Result) -> Iterator[Line]:
    """Yield the lines that metrics.toml gives to the figures of one workload; what is absent stands first or not."""
    mine = [m for m in METRICS.values() if m.card and m.belongs(result.trial.workload)]
    for line in dict.fromkeys(m.card for m in mine):
        found = [(m, first(result, m.of)) for m in mine if m.card == line]
        told = [
            f"{m.head} {why(f)}".removeprefix(f"{line} ") for m, f in found if _known(f) or m is found[0][0]
        ]
        yield line, "   ".join(told)


def _bound(found: Field) -> str:
    """Return the upper bound of p99 with its assumption, or why p99 has no bound."""
    if isinstance(found, Absent):
        return f"no bound of p99 ({found.reason.removeprefix('n/a: ')})"
    longest = math.floor(reach(found.n, 0.99)) if found.n else 0
    stalls = f", if no stall is longer than {longest} queries" if longest > 1 else ""
    return f"p99 below {show(found, interval=False)} with 99 % confidence{stalls}"


def _parts(result: Result) -> Iterator[Line]:
    """Yield the parts of a unit's time, if they were measured."""
    names = [name for name in result.spans.names if name != UNIT] if result.spans else []
    known = ((name, result.metrics.get(f"{name}_s")) for name in names)
    found = [f"{name} {_brief(field)}" for name, field in known if field is not None]
    if found:
        yield "of which", "   ".join(found)


MEDIAN, TAIL = "_part_p50_s", "_part_p99_s"


def _marked(result: Result) -> Iterator[Line]:
    """Yield the median and the p99 of the parts that the window's own units noted."""
    said = []
    for name in (each.removesuffix(MEDIAN) for each in result.metrics if each.endswith(MEDIAN)):
        tail = result.metrics.get(name + TAIL)
        p99 = f" (p99 {_brief(tail)})" if _known(tail) else ""
        said.append(f"{name} {_brief(result.metrics[name + MEDIAN])}{p99}")
    if said:
        yield "in the window", detail("   ".join(said))


def _memory(result: Result) -> str:
    """Return the peak memory; for workers RSS, PSS (shared pages counted once), GPU memory and the paper's rule."""
    m = result.metrics.get
    if not result.workers:
        return f"peak RSS {why(m('peak_rss_bytes'))}"
    said = [f"peak RSS {why(m('processes_rss_bytes'))} in all"]
    said += [f"PSS {_brief(m('processes_pss_bytes'))}"] if _known(m("processes_pss_bytes")) else []
    said += [f"GPU {why(m('gpu_processes_memory_bytes'))}"] if result.trial.place.channels else []
    rule = m("memory_rule_bytes")
    said += [f"P x (model + 2 x batch) is {_brief(rule)}"] if _known(rule) else []
    return "   ".join(said)


def _consumed(result: Result) -> Iterator[Line]:
    """Yield power and energy, in one line if both are unmeasured for the same reason."""
    power, energy = (_metered(result, name) for name in ("power_w", "energy_per_sample_j"))
    if power == energy:
        yield "power", detail(f"and energy: {power}")
        return
    for name, text, field in (("power", power, "power_w"), ("energy", energy, "energy_per_sample_j")):
        yield name, text if _known(result.metrics.get(field)) else detail(text)


def _metered(result: Result, name: str) -> str:
    """Return watts or joules with the meter's scope, name and method."""
    text, meter = why(result.metrics.get(name)), result.meter
    if meter is None or isinstance(result.metrics.get(name), Absent):
        return text
    said = ends(result.metrics.get(name), result.metrics.get("energy_j"))
    return f"{text}{said and f' {said}'}  ({meter.scope}: {meter.name}, {meter.method})"


def _idle(result: Result) -> str:
    """Return the idle power, its drift, and the energy of a sample beyond it."""
    m, meter = result.metrics.get, result.meter
    if meter is None or isinstance(m("idle_power_w"), Absent):
        return why(m("idle_power_w"))
    moved = f"{show(m('idle_power_drift_w'), interval=False)} from before to after"
    beyond = why(m("energy_dynamic_per_sample_j"))
    return f"{show(m('idle_power_w'))} ({meter.scope}), {moved}; {beyond} a sample beyond it"


def _long_run(result: Result) -> Iterator[Line]:
    """Yield burst, sustained and throttling if the window is long enough for both."""
    m = result.metrics.get
    if not _known(m("burst_throughput_sps")):
        return
    settled, moment = m("settled_s"), m("time_to_throttle_s")
    for name in ("burst", "sustained"):
        latency = m(f"{name}_latency_p50_s")
        said = [why(m(f"{name}_throughput_sps"))]
        said += [f"p50 {show(latency)}"] if _known(latency) else []
        if name == "sustained" and isinstance(settled, Measured):
            said.append(f"settled {f'after {settled.value:.0f} s' if settled.value else 'from the start'}")
        yield name, "   ".join(said)
    late = f"from second {moment.value:.0f} on" if isinstance(moment, Measured) else why(moment)
    yield "throttling", late


def _sampler(result: Result) -> str:
    cost, rate = result.metrics.get("sampler_cpu_share"), result.metrics.get("sampler_hz")
    return f"{cost.value:.2%} of one core at {show(rate)}" if isinstance(cost, Measured) else why(cost)


# -- the load ------------------------------------------------------------------------------------------------

PENALTY = re.compile(r"idle_gap_(.+)_penalty")


def load(result: Result) -> Iterator[Line]:
    """Yield the lines of a scenario: whether an open loop kept up, and LoadGen's result."""
    m = result.metrics.get
    offered, achieved, waiting = (m(n) for n in ("offered_rate_qps", "achieved_rate_qps", "backlog_queries"))
    if _known(offered) and _known(achieved) and isinstance(waiting, Measured):
        text = f"{show(offered)} offered, {show(achieved)} done"
        yield "load", f"{text}; {waiting.value:.0f} in the queue when the last fell due"
    said: dict[str, Json] = result.artifact.get("loadgen") or {}
    if said:
        verdict = str(said.get("result_validity", "without a result"))
        yield "loadgen", (doc.Mark(verdict, "good" if verdict == "VALID" else "warn"), "  ", _loadgen(said))


def live(result: Result) -> Iterator[Line]:
    """Yield the lines of live work: frame ages, the queue, and misses of the deadline."""
    m = result.metrics.get
    if _known(m("frame_age_p50_s")):
        dropped = m("dropped_share")
        said = [f"p50 {_brief(m('frame_age_p50_s'))}", f"p99 {why(m('frame_age_p99_s'))}"]
        said += [f"jitter {_brief(m('jitter_s'))}", f"{_brief(dropped)} dropped"]
        yield "frame age", "   ".join(said)
    deepest = m("queue_depth_max")
    if isinstance(deepest, Measured):
        text = f"mean {_brief(m('queue_depth_mean'))}, at most {deepest.value:.0f} in the machine at once"
        yield "queue depth", detail(text)
    missed, burst, limit = m("deadline_miss_ratio"), m("deadline_miss_burst"), result.trial.deadline_s
    if limit is None:
        return
    text = f"{units.text(limit, 's')} missed by {show(missed)}" if _known(missed) else why(missed)
    if isinstance(missed, Measured) and missed.value and isinstance(burst, Measured):
        late = f"; worst {_brief(m('deadline_overrun_worst_s'))} late"
        text += f", at most {burst.value:.0f} in a row{late * _known(m('deadline_overrun_worst_s'))}"
    yield "deadline", text


def _loadgen(said: dict[str, Json]) -> str:
    out = [f"{str(said.get('loadgen_version', '?')).split(' ')[0]} drove"]
    out += [
        f"p{float(p):g} {pair['loadgen_ns'] / 1e6:.4g} ms by its clock, {pair['ours_ns'] / 1e6:.4g} by ours"
        for p, pair in (said.get("percentiles") or {}).items()
        if p != "50.00"
    ]
    if rate := said.get("result_samples_per_second"):
        out.append(f"{rate:.4g} samples/s by its clock")
    if checked := said.get("accuracy"):
        same = f"{checked['identical']} of {checked['samples']}"
        out.append(f"accuracy mode: {same} answers identical to the gate's")
    return "; ".join(out)


def _tables(result: Result) -> Iterator[doc.Part]:
    """Yield the tables of workers and of idle gaps."""
    yield from each_worker(result)
    yield from gaps(result)


def gaps(result: Result) -> Iterator[doc.Table]:
    """Yield the idle-gap curve: idleness, median of the first query after it, penalty over back to back."""
    labels = [match[1] for name in result.metrics if (match := PENALTY.fullmatch(name))]
    rows = []
    for label in labels:
        latency = result.metrics[f"idle_gap_{label}_latency_p50_s"]
        penalty = units.ratio(result.metrics[f"idle_gap_{label}_penalty"], decimals=2)
        count = latency.n if isinstance(latency, Measured) else None
        rows.append(
            doc.Row((f"{label.removesuffix('ms')} ms", latency, "" if label == "0ms" else penalty, count))
        )
    if rows:
        heads = (
            doc.Column("Idle gap"),
            doc.Column("Median latency", "s"),
            doc.Column("Penalty"),
            doc.Column("n", "1", rank=1),
        )
        yield doc.Table(heads, tuple(rows))


# -- several workers -----------------------------------------------------------------------------------------

WIDTH = 24
"""Characters of the longest bar, that of the fastest worker."""
EIGHTHS = " ▏▎▍▌▋▊▉"


def workers(result: Result) -> Iterator[Line]:
    """Yield the line of the workers: how evenly the total was divided, and how closely they started and stopped."""
    if not result.workers:
        return
    m, own = result.metrics.get, [w for w in result.workers if w.number < result.trial.processes]
    said = []
    if len(own) > 1:
        said += [f"T/P {_brief(m('throughput_per_process_sps'))}", f"fairness {_brief(m('fairness'))}"]
        worst = m("latency_p99_worst_worker_s")
        said += [f"worst worker's p99 {_brief(worst)}"] if _known(worst) else []
    if len(result.workers) > 1:
        said += [f"started within {_brief(m('start_skew_s'))}", f"stopped within {_brief(m('stop_skew_s'))}"]
    gap = m("counter_gap_queries")
    if isinstance(gap, Measured):
        said.append("counter agrees" if gap.value <= 1 else f"counter differs by {gap.value:.0f} queries")
    yield "workers", "   ".join(said)


def each_worker(result: Result) -> Iterator[doc.Table]:
    """Yield the table of workers: throughput with a bar, latency and memory of each."""
    each = shares(result) if result.workers else []
    if not each:
        return
    own = result.trial.processes
    most = max((_value(s.throughput_sps) for s in each if s.worker.number < own), default=0.0)
    tail = _tail(result, each)
    pinned = result.trial.sharing == "pinned"
    on_gpu = any(_known(s.worker.gpu_memory_bytes) for s in each)
    colocated = any(s.worker.number >= own for s in each)
    columns = [
        doc.Column("Worker", head="worker"),
        doc.Column.of(METRICS["throughput_sps"]),
        doc.Column("Share", rank=2, head=""),
    ]
    columns += [doc.Column(f"{tail} latency", "s", head=tail)] if tail else []
    columns += [doc.Column("RSS", "bytes")] + ([doc.Column("GPU", "bytes")] if on_gpu else [])
    columns += ([doc.Column("CPU")] if pinned else []) + ([doc.Column("Model", head="")] if colocated else [])
    rows = []
    for s in each:
        w, beside = s.worker, s.worker.number >= own
        cells: list[doc.Value] = [f"W{w.number}", s.throughput_sps]
        cells.append("" if beside else bar(_value(s.throughput_sps), most).rstrip())
        cells += [s.latency[f"latency_{tail}_s"]] if tail else []
        cells += [w.peak_rss_bytes] + ([w.gpu_memory_bytes] if on_gpu else [])
        cells += ([ranges(w.cpus)] if pinned else []) + ([w.model if beside else ""] if colocated else [])
        rows.append(doc.Row(tuple(cells)))
    yield doc.Table(tuple(columns), tuple(rows), "Workers", level=doc.DETAIL)


def _tail(result: Result, each: Sequence[Share]) -> str:
    """Return the highest percentile that every worker has, so that all rows show the same one, or '' if none."""
    if not registry.scenario(result.trial.scenario).timed:
        return ""
    names = ("p99", "p95", "p90", "p50")
    return next((n for n in names if all(_known(s.latency[f"latency_{n}_s"]) for s in each)), "")


def bar(value: float, most: float) -> str:
    """Return a bar of up to WIDTH characters, to an eighth of one, and a space."""
    eighths = round(8 * WIDTH * value / most) if most > 0 else 0
    whole, rest = divmod(eighths, 8)
    return ("█" * whole + (EIGHTHS[rest] if rest else "")).ljust(WIDTH) + " "


def _value(field: Field) -> float:
    return 0.0 if isinstance(field, Absent) else field.value


# -- a listing -----------------------------------------------------------------------------------------------


def columns_of(results: Sequence[Result]) -> list[doc.Column]:
    """Return the columns of a listing: a metric of some workloads, or of some results, only where one has it."""
    works = {r.trial.workload for r in results}

    def belongs(metric: metrics.Metric) -> bool:
        has = not metric.optional or any(_known(first(r, metric.of)) for r in results)
        return has and (not metric.workloads or bool(works & set(metric.workloads)))

    listed = filter(belongs, metrics.shown("list"))
    return [doc.Column.of(m, rank=i) for i, m in enumerate(listed)]


def _figures(result: Result, columns: Sequence[doc.Column]) -> list[doc.Value]:
    """Return the figures of the columns of a listing."""
    found: list[doc.Value] = []
    for column in columns:
        field = first(result, METRICS[column.key].of)
        found.append(Measured(field.value, field.unit, n=field.n) if isinstance(field, Measured) else field)
    return found


def _verdict(result: Result) -> doc.Value:
    """Return the verdict of a result, or how it ended where there is none to trust."""
    return (
        doc.badge(result.verdict.trust)
        if result.status is Status.OK
        else doc.Mark(result.status.value, "bad")
    )


def reasons(results: Sequence[Result], names: Mapping[str, str]) -> doc.Items | None:
    """Return why results are not ok, one bullet each."""
    found = tuple(f"{names[r.id]}  {r.reason}" for r in results if r.reason is not None)
    return doc.Items(found, "Why not", level=doc.DETAIL) if found else None


def listing(results: Sequence[Result], *, brief: bool = False) -> doc.Document:
    """Return the table with one row for each result; if there are several machines, each row names its machine.

    `brief` leaves the year out. Where there is little room, the cell and who judged go first, then every figure but the
    median latency, then the time and the ends of long names.
    """
    several = len({r.machine.id for r in results}) > 1
    columns = columns_of(results)
    names = ids.short_ids(results)
    heads = [
        *(doc.Column("result"), doc.Column("started (UTC)", head="at (UTC)" if brief else "", rank=1)),
        doc.Column("cell", rank=len(columns) + 2),
        *(doc.Column("model", least=MODEL), doc.Column("variant", least=VARIANT), doc.Column("verdict")),
        *columns,
        doc.Column("judged by", rank=len(columns) + 3),
    ]
    rows = []
    for r in results:
        again = f" #{r.trial.replicate}" if r.trial.replicate else ""
        started = r.started_at[5 * brief : 16].replace("T", " ")
        cells: list[doc.Value] = [names[r.id], started, r.trial.cell[:CELL]]
        cells.append(r.trial.model.partition("#")[0])
        cells += [f"{r.label}{again}", _verdict(r), *_figures(r, columns), _judged(r)]
        rows.append(doc.Row((*cells, r.machine.id[:8]) if several else tuple(cells)))
    heads += [doc.Column("machine")] if several else []
    return doc.Document("Results", (doc.Table(tuple(heads), tuple(rows)), reasons(results, names)))
