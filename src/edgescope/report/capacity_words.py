"""The words of a capacity answer, for the terminal and the page alike."""

from __future__ import annotations

from collections.abc import Sequence

from edgescope.analysis.capacity import Capacity
from edgescope.analysis.service import Kept, Point, words
from edgescope.records import Measured

FITS = {Kept.YES: "yes", Kept.NO: "no"}


def fits(point: Point) -> str:
    """Return yes, no, or what a short run makes likely."""
    if point.weaker and point.fits:
        return "yes, without a bound"
    if point.kept is Kept.PERHAPS:
        confirmed = point.stage == "confirm"
        return "not shown" if confirmed else "likely" if point.fits else "unlikely"
    return FITS[point.kept]


def line(point: Point) -> str:
    """Return one run in one line, for the progress."""
    why = point.why or "; ".join(words(h) for h in point.held)
    return f"{fits(point)}: {why}"


def clients(count: int) -> str:
    """Return `1 client`, `7 clients`."""
    return f"{count} client" if count == 1 else f"{count} clients"


def sentence_of(found: Capacity) -> str:
    """Return the answer: how many fit, what keeps one more out, and what confirms it."""
    asked = found.asked
    each = f"at {asked.rate:g}/s"
    if found.confirmed is None:
        why = found.above.why if found.above else "nothing was measured"
        return f"not even one client {each} fits: {why}. {_capital(found.limit.sentence)}."
    held = "; ".join(words(h) for h in found.confirmed.held)
    verb = "fits" if found.clients == 1 else "fit"
    text = f"{clients(found.clients)} {each} {verb}: {held}. "
    above = found.above
    if above is None:
        text += f"More than {found.clients} were not tried (--most). "
    else:
        if maybe := _unproved(found):
            text += f"{clients(maybe)} may, by a short run alone. "
        text += f"{_others(above, found.clients)}: {above.why}. {_capital(found.limit.sentence)}. "
    seconds = f"Confirmed over {found.confirmed.seconds:.0f} s"
    if found.confirmed.weaker:
        return f"{text}{seconds}, too few queries for a bound."
    longer = found.confirmed.seconds >= asked.confirm_s + 1
    return f"{text}{seconds}{_why_longer(found.confirmed, asked.confirm_s) if longer else ''}."


def _others(above: Point, fit: int) -> str:
    """Return `One more does not`, or that it is not expected to, where only a short run spoke against it."""
    sure = above.kept is Kept.NO or above.stage == "confirm"
    if above.clients == fit + 1:
        return "One more does not" if sure else "One more is not expected to"
    return f"{above.clients} {'do not' if sure else 'are not expected to'}"


def _unproved(found: Capacity) -> int:
    """Return the most clients that a short run found likely, between the answer and what does not fit; 0 for none."""
    top = found.above.clients if found.above else 0
    return max((p.clients for p in found.points if p.fits and found.clients < p.clients < top), default=0)


def _why_longer(point: Point, confirm_s: float) -> str:
    names = ", ".join(h.slo.name for h in point.held if h.slo.quantile is not None)
    return (
        f", not {confirm_s:.0f}: queries that wait together count as fewer, and a bound of {names} needs more"
    )


def _capital(text: str) -> str:
    return text[:1].upper() + text[1:]


def aside(found: Capacity) -> Sequence[str]:
    """Return the figures behind the limit, and what the closed loop says can be answered at most."""
    lines = []
    if isinstance(found.throughput, Measured):
        whom = "the most that can be answered" if found.asked.serve == "one" else "the most of one process"
        lines.append(f"closed loop  {found.throughput.value:.4g} queries/s, {whom}")
    if found.above is not None and found.limit.evidence:
        lines.append(f"at {clients(found.above.clients)}  " + ", ".join(found.limit.evidence))
    return lines
