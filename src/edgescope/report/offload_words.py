"""What an offload answer says, in the words that the terminal and the page share."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np

from edgescope.analysis.offload.network import Profile
from edgescope.analysis.offload.question import Question
from edgescope.records import Absent

FLIPPED = {
    "edge": "the edge answers",
    "cloud": "the cloud answers",
    "neither": "neither keeps the constraints",
}


def rate(bps: float) -> str:
    """Return bits per second as `20 Mbit/s`."""
    for factor, unit in ((1e9, "Gbit/s"), (1e6, "Mbit/s"), (1e3, "kbit/s")):
        if bps >= factor:
            return f"{bps / factor:.3g} {unit}"
    return f"{bps:.3g} bit/s"


def time(seconds: float) -> str:
    """Return seconds as `20 ms`."""
    for factor, unit in ((1.0, "s"), (1e3, "ms")):
        if seconds * factor >= 1:
            return f"{seconds * factor:.3g} {unit}"
    return f"{seconds * 1e6:.3g} us"


def network(of: Profile) -> str:
    """Return the network in one line."""
    spread = f", jitter {time(of.jitter_s)}" if of.jitter_s and not of.rtt_samples_s else ""
    spread = f", {len(of.rtt_samples_s)} samples" if of.rtt_samples_s else spread
    loss = "n/a" if of.loss_absent else f"{of.loss:.2%}"
    return f"RTT {time(of.rtt_s)}{spread}, up {rate(of.up_bps)}, down {rate(of.down_bps)}, loss {loss} ({of.source})"


def pick(found: Question) -> str:
    """Return the answer in a few words."""
    chosen = found.answer.pick
    if chosen is None:
        return "none: infeasible"
    return {
        "edge": "edge: answer where the query is",
        "cloud": "cloud: send every query",
        "boards": f"split over {chosen.boards} boards at the edge",
        "split": f"split: {1 - chosen.share:.0%} at the edge, {chosen.share:.0%} in the cloud",
    }[chosen.name]


def flips(found: Question) -> list[str]:
    """Return where the choice between edge and cloud changes, or that it does not."""
    goal = found.model.wanted.goal.best
    out = [
        f"with {'less than' if f.below else 'more than'} {rate(f.at)} up, {FLIPPED[f.becomes]} ({goal})"
        if f.what == "bandwidth"
        else f"with a round trip {'below' if f.below else 'above'} {time(f.at)}, {FLIPPED[f.becomes]} ({goal})"
        for f in found.flips
    ]
    left = {"bandwidth", "rtt"} - {f.what for f in found.flips}
    if left == {"bandwidth", "rtt"}:
        return ["no bandwidth alone and no round trip alone changes the choice between edge and cloud"]
    if left:
        out.append(f"no {'bandwidth' if 'bandwidth' in left else 'round trip'} alone changes it")
    return out


def borders(found: Question) -> list[str]:
    """Return where the borders of the curve end."""
    curve, out = found.curve, []
    if isinstance(curve.edge_s, Absent):
        out.append("the edge cannot carry this load: any network over which the cloud can is better")
    elif curve.equal_ends_s is None:
        out.append(f"at no bandwidth and no distance is the cloud's {curve.quantity} down to the edge's")
    else:
        out.append(
            f"break-even: the cloud's {curve.quantity} can match the edge's {time(curve.edge_s.value)} "
            f"up to a round trip of {time(curve.equal_ends_s)}, given the bandwidth"
        )
    if found.model.wanted.constraints:
        limits = " and ".join(c.text for c in found.model.wanted.constraints)
        ends = curve.fits_ends_s
        out.append(
            f"the cloud keeps {limits} over no network"
            if ends is None
            else f"the cloud keeps {limits} up to a round trip of {time(ends)}, given the bandwidth"
        )
    return out


def absences(found: Question) -> list[str]:
    """Return why a figure of the table is n/a, each reason once."""
    reasons: dict[str, list[str]] = {}
    for option in found.answer.options:
        for name, column in (
            ("p99", "p99_s"),
            ("samples/s", "throughput_sps"),
            ("energy", "energy_per_sample_j"),
        ):
            field = option.figures[column]
            if isinstance(field, Absent) and not any(field.reason in text for text in option.broken):
                reasons.setdefault(f"{name}: {field.reason}", []).append(option.words)
    return [f"{', '.join(where)}: {reason}" for reason, where in reasons.items()]


def spread(samples: Sequence[float], say: Callable[[float], str]) -> list[str]:
    """Return median, p99 (of three bandwidths: the least), and range."""
    tail = min(samples) if len(samples) < 100 else float(np.quantile(samples, 0.99))
    return [say(float(np.median(samples))), say(tail), f"{say(min(samples))} to {say(max(samples))}"]
