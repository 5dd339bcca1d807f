"""The words of a capacity answer, for the terminal and the page alike."""

from __future__ import annotations

from edgescope.analysis.capacity.answer import Capacity
from edgescope.analysis.capacity.promises import Point, words
from edgescope.analysis.cells.objective import Kept
from edgescope.records import Measured

#: By how much a run must have answered more than the closed loop before that is no noise.
EXCEEDED = 1.02
FITS = {Kept.YES: "yes", Kept.NO: "no"}


def fits(point: Point) -> str:
    """Return yes, no, or what a short run makes likely."""
    if point.by_figure:
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
    """Return the answer in one paragraph."""
    return " ".join(f"{_capital(text)}." for _, text in sentences(found))


def sentences(found: Capacity) -> list[tuple[str, str]]:
    """Return (label, text) of the answer: how many fit, what keeps one more out and why, what confirms it."""
    each = f"at {found.asked.rate:g}/s"
    above, confirmed = found.above, found.confirmed
    if confirmed is None:
        why = above.why if above else "nothing was measured"
        return [("fits", f"not even one client {each} fits: {why}"), ("limit", found.limit.sentence)]
    verb = "fits" if found.clients == 1 else "fit"
    held = "; ".join(words(h) for h in confirmed.held)
    out = [("fits", f"{clients(found.clients)} {each} {verb}: {held}")]
    if above is None:
        out.append(("next", f"more than {found.clients} were not tried (--max-clients)"))
    else:
        if maybe := _unproved(found):
            out.append(("perhaps", f"{clients(maybe)} may, by a short run alone"))
        out.append(("next", f"{_others(above, found.clients)}: {above.why}"))
        out.append(("limit", found.limit.sentence))
    return [*out, ("sure", _confirmed(confirmed, found.asked.confirm_s))]


def _confirmed(point: Point, confirm_s: float) -> str:
    """Return how long the sustained run was, and why it was longer than asked or says less."""
    text = f"confirmed over {point.seconds:.0f} s"
    if point.by_figure:
        return f"{text}, too few queries for a bound"
    if point.seconds < confirm_s + 1:
        return text
    names = ", ".join(h.asked.name for h in point.held if h.asked.quantile is not None)
    return (
        f"{text}, not {confirm_s:.0f}: queries that wait together count as fewer, and a bound of {names}"
        " needs more"
    )


def _others(above: Point, fit: int) -> str:
    """Return `one more does not`, or that it is not expected to, where only a short run spoke against it."""
    sure = above.kept is Kept.NO or above.stage == "confirm"
    if above.clients == fit + 1:
        return "one more does not" if sure else "one more is not expected to"
    return f"{above.clients} {'do not' if sure else 'are not expected to'}"


def _unproved(found: Capacity) -> int:
    """Return the most clients that a short run found likely, between the answer and what does not fit; 0 for none."""
    top = found.above.clients if found.above else 0
    return max((p.clients for p in found.points if p.fits and found.clients < p.clients < top), default=0)


def _capital(text: str) -> str:
    return text[:1].upper() + text[1:]


def aside(found: Capacity) -> list[tuple[str, str]]:
    """Return (label, text): what the closed loop answered, and the figures behind the limit."""
    lines = []
    if isinstance(found.throughput, Measured):
        lines.append(("closed loop", _closed(found, found.throughput.value)))
    if found.above is not None and found.limit.evidence:
        lines.append((f"at {clients(found.above.clients)}", "; ".join(found.limit.evidence)))
    return lines


def _closed(found: Capacity, rate: float) -> str:
    """Say what the closed loop is: the ceiling of one process, unless a run answered more than that."""
    count = found.asked.in_flight
    text = (
        f"{rate:.4g} queries/s by one process, {'one query' if count == 1 else f'{count} queries'} at a time"
    )
    more = max((p.achieved.value for p in found.points if isinstance(p.achieved, Measured)), default=0.0)
    if more > rate * EXCEEDED:
        return f"{text}; no maximum: {more:.4g}/s were answered under load"
    return text if found.asked.server_processes == "per-client" else f"{text}: it answers no more"
