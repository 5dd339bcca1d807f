"""Remarks on a store of concurrent runs: cells in which one way of sharing the device beats another.

Two cells are equal when they differ in their sharing alone: model, precision, batch, number of processes, engine,
options, mode and machine are the same. Total throughput is compared, as a ratio with its interval; a difference within
the noise, or within five per cent, gives no remark. `remarks(results)` gives the largest first; each is a sentence.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from edgescope.analysis.cells.concurrency import Cell, cells, key, sharing_words
from edgescope.analysis.cells.replicates import NOTICED, above, log_mean, quotient
from edgescope.records import Field, Measured, Result, Trust


@dataclass(frozen=True)
class Remark:
    """One sentence, and the figures behind it."""

    subject: str
    """The kind of remark: `mps`, `pinned` or `processes`."""
    text: str
    ratio: Measured
    """The ratio of their total throughputs."""
    results: tuple[str, ...]
    """Ids of the results it was taken from."""

    def __str__(self) -> str:
        return self.text


@dataclass(frozen=True)
class Pair:
    """Two cells that differ only in how the device is shared, or in the number of processes."""

    over: Cell
    under: Cell
    ratio: Field

    @property
    def subject(self) -> str:
        """The sharing in question."""
        return self.over.trial.sharing.partition("=")[0]


def remarks(results: Iterable[Result]) -> tuple[Remark, ...]:
    """Return the remarks on these results, the largest gain first; () if there are none.

    Machines are not mixed: each gets its own remarks, in turn.
    """
    machines: dict[str, list[Result]] = {}
    for result in results:
        machines.setdefault(result.machine.id, []).append(result)
    return tuple(r for group in machines.values() for r in of_cells(cells(group)))


def of_cells(found: Sequence[Cell]) -> tuple[Remark, ...]:
    """Return, for each way of sharing, each model's largest gain, the mean and the largest loss."""
    pairs = equal_pairs(found)
    said = [r for subject in ("mps", "pinned") for r in _on([p for p in pairs if p.subject == subject])]
    return (*said, *_processes(found))


def equal_pairs(found: Sequence[Cell]) -> list[Pair]:
    """Return each MPS or pinned cell with its equal under plain sharing; only cells of several processes count."""
    shared = {key(c.trial)[:-1]: c for c in found if c.ok and c.trial.sharing == "time_slicing"}
    own = [c for c in found if c.ok and c.trial.sharing != "time_slicing" and c.trial.processes > 1]
    both = [(c, shared[key(c.trial)[:-1]]) for c in own if key(c.trial)[:-1] in shared]
    return [Pair(a, b, quotient(a.runs, b.runs, "throughput_sps")) for a, b in both]


def _on(pairs: Sequence[Pair]) -> list[Remark]:
    known = [(p, p.ratio) for p in pairs if isinstance(p.ratio, Measured)]
    sure = [(p, r) for p, r in known if above(r) is not None and abs(r.value - 1) >= NOTICED]
    if not sure:
        return []
    best: dict[str, tuple[Pair, Measured]] = {}
    for pair, ratio in sorted(sure, key=lambda each: -each[1].value):
        best.setdefault(pair.over.trial.model, (pair, ratio))
    tried = Counter(p.over.trial.model for p, _ in known)
    out = [_remark(p, r, _of(tried[name], "largest")) for name, (p, r) in best.items() if r.value > 1]
    out += [_summary(pairs)] if len(known) > 1 else []
    worst = min(sure, key=lambda each: each[1].value)
    return out + ([_remark(*worst, _of(len(known), "least"))] if worst[1].value < 1 else [])


def _of(count: int, which: str) -> str:
    """Return the note that a figure was picked among several: the most extreme of noisy figures is biased outwards."""
    return (
        f"; the {which} of {count}, so leaning {'high' if which == 'largest' else 'low'}" if count > 1 else ""
    )


def _remark(pair: Pair, ratio: Measured, picked: str) -> Remark:
    a, b = pair.over.trial, pair.under.trial
    cell = f"{a.model} {a.precision} batch {a.batch}, P = {a.processes}"
    text = f"{cell}: {sharing_words(a)} gives {times(ratio)} the total throughput of {sharing_words(b)}"
    return Remark(
        pair.subject, text + _within(ratio, picked, pair.over, pair.under), ratio, _ids(pair.over, pair.under)
    )


def _summary(pairs: Sequence[Pair]) -> Remark:
    known = [(p, p.ratio) for p in pairs if isinstance(p.ratio, Measured)]
    more = sum(above(r) is True and r.value >= 1 + NOTICED for _, r in known)
    less = sum(above(r) is False and r.value <= 1 - NOTICED for _, r in known)
    mean = log_mean([r for _, r in known])
    assert isinstance(mean, Measured)
    low, high = min(r.value for _, r in known), max(r.value for _, r in known)
    a, b = pairs[0].over.trial, pairs[0].under.trial
    text = (
        f"{sharing_words(a).partition(' at ')[0]} against {sharing_words(b)} at {len(known)} equal cells: more in "
        f"{more}, less in {less}; {digits(mean.value)}x in the geometric mean, {digits(low)}x to {digits(high)}x"
    )
    ids = [i for p, _ in known for i in _ids(p.over, p.under)]
    return Remark(pairs[0].subject, text, mean, tuple(dict.fromkeys(ids)))


def _processes(found: Sequence[Cell]) -> list[Remark]:
    """Return the remark on where more processes gained the most over one of the same model, precision and batch."""
    one = {
        key(c.trial)[:-2]: c
        for c in found
        if c.ok and c.trial.processes == 1 and c.trial.sharing == "time_slicing"
    }
    many = [
        (c, one[key(c.trial)[:-2]])
        for c in found
        if c.ok and c.trial.processes > 1 and key(c.trial)[:-2] in one
    ]
    pairs = [Pair(a, b, quotient(a.runs, b.runs, "throughput_sps")) for a, b in many]
    known = [(p, p.ratio) for p in pairs if isinstance(p.ratio, Measured)]
    if not known:
        return []
    pair, ratio = max(known, key=lambda each: each[1].value)
    if above(ratio) is True and ratio.value >= 1 + NOTICED:
        t = pair.over.trial
        shared = f"{t.processes} processes ({sharing_words(t)})"
        text = f"{t.model} {t.precision} batch {t.batch}: {shared} give {times(ratio)} the total throughput of one"
        text += _within(ratio, _of(len(known), "largest"), pair.over, pair.under)
        return [Remark("processes", text, ratio, _ids(pair.over, pair.under))]
    if all(r.hi is not None and r.hi <= 1 + 2 * NOTICED for _, r in known):
        text = f"more processes gave no more in total: at best {times(ratio)} the throughput of one ({pair.over.place})"
        return [Remark("processes", text, ratio, _ids(pair.over, pair.under))]
    return []


def times(ratio: Measured) -> str:
    """Return `3.6x [3.5, 3.7]`."""
    text = f"{digits(ratio.value)}x"
    if ratio.lo is None or ratio.hi is None:
        return text
    places = 0 if ratio.value >= 100 else 1 if ratio.value >= 10 else 2
    places = places if round(ratio.hi - ratio.lo, 6) <= 0.2 else min(places, 1)
    return f"{ratio.value:.{places}f}x [{ratio.lo:.{places}f}, {ratio.hi:.{places}f}]"


def digits(value: float) -> str:
    """Return a ratio with two decimals below ten, one below a hundred."""
    return f"{value:.2f}" if value < 10 else f"{value:.1f}" if value < 100 else f"{value:,.0f}"


def _within(ratio: Measured, picked: str, *of: Cell) -> str:
    """Return where the interval comes from, and among how many cells a figure was picked."""
    bad = any(c.verdict.trust in (Trust.DISTURBED, Trust.THROTTLED) for c in of)
    but = ("; the machine was disturbed or throttled" if bad else "") + picked
    if ratio.n > 1:
        return f" ({ratio.n} pairs of runs{but})"
    runs = " and ".join(dict.fromkeys(str(len(c.runs)) for c in of))
    plural = "run" if runs == "1" else "runs"
    return f" ({runs} {plural} each{'' if ratio.lo is None else ', interval from within'}{but})"


def _ids(*of: Cell) -> tuple[str, ...]:
    return tuple(r.id for c in of for r in c.runs)
