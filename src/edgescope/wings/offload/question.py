"""The whole answer to an offload question: options, pick, flips, break-even curve and assumptions."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from edgescope.records import Absent
from edgescope.wings.offload.answer import Answer, Flip, answer, flips, time_limit_s
from edgescope.wings.offload.breakeven import Curve, curve
from edgescope.wings.offload.model import Model
from edgescope.wings.offload.network import Profile
from edgescope.wings.offload.transit import bandwidth


@dataclass(frozen=True)
class Question:
    """Everything that is printed, drawn and written."""

    model: Model
    network: Profile
    answer: Answer
    flips: tuple[Flip, ...]
    curve: Curve
    limit: tuple[str, float] | None
    """The tightest constraint on a latency: (p99, 0.05)."""
    notes: tuple[str, ...]
    """Warnings first, then assumptions."""


def question(model: Model, network: Profile, notes: Iterable[str] = ()) -> Question:
    """Return the whole answer for a network."""
    return Question(
        model,
        network,
        answer(model, network),
        tuple(flips(model, network)),
        curve(model, network),
        time_limit_s(model),
        (*notes, *_assumed(model, network)),
    )


def _assumed(model: Model, network: Profile) -> list[str]:
    """Return the assumptions behind the figures: everything that was not measured."""
    out = []
    if not network.measured:
        shape = "without jitter" if network.jitter_s == 0 else "RTT jitter modelled as exponential"
        out.append(f"the network was given, not measured: {shape}")
    if network.loss_absent:
        out.append(f"loss: {network.loss_absent}; none is added")
    for way in ("up", "down"):
        got, given = bandwidth(network, way), network.up_bps if way == "up" else network.down_bps
        if got < given:
            out.append(
                f"{network.loss:.2g} lost at {network.rtt_s * 1e3:.3g} ms hold one TCP connection to "
                f"{got / 1e6:.3g} Mbit/s {way} (Mathis 1997), below the {given / 1e6:.3g} given"
            )
    if model.request.rate is not None:
        kind = "at random (Poisson)" if model.request.poisson else "at a steady beat"
        out.append(f"queries arrive {kind}; waiting is modelled from measured service times")
    sent = model.request.radio_w is not None or model.request.radio_j_per_mb is not None
    if sent and not isinstance(model.local.idle_power_w, Absent):
        out.append(
            "energy of sending: the radio as given, and the board's measured idle power until the answer is back"
        )
    return out
