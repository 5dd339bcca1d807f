"""How near generation comes to what the machine allows: memory bandwidth in decode (MBU), arithmetic in prefill (MFU).

A decoded token reads every weight that it is multiplied with once, and the keys and values of all tokens before it. An
answer that runs alone can be no faster than its bytes over the bandwidth. Answers that run together share the reading
of the weights, not that of their caches. Of an embedding one row is read, except where it is the output layer as well.
A prompt reads the weights once for all its tokens, so it is bound by its products.

The ceilings are measured on the machine (`edgescope doctor --roofline`). A share above 1 cannot be: then a ceiling was
measured on a busy machine, or a count is wrong, and no share is given.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from edgescope.analysis.roofline import Ceilings, bandwidth_at
from edgescope.records import Absent, Field, Measured
from edgescope.wings.generation.architecture import Architecture

UNMEASURED = Absent("no ceilings of this machine: edgescope doctor --roofline DEVICE measures them")
TOLERANCE = 0.02
"""How far above 1 a share may lie by the scatter of the two measurements that it compares."""


@dataclass(frozen=True)
class Traffic:
    """What a model moves, as an engine holds it."""

    shape: Architecture
    weight_bytes: float
    """Bytes of all weights as the engine keeps them; those of a separate embedding belong to it."""
    embedding_bytes: float
    """Bytes of the embedding alone."""
    kv_bytes: float
    """Bytes of one number in the cache."""

    @property
    def read_bytes(self) -> float:
        """Return the bytes of weights that a decoded token needs: all, without an embedding that is only looked up."""
        return self.weight_bytes - (0 if self.shape.tied else self.embedding_bytes)

    def token_bytes(self, before: float, together: float = 1.0) -> float:
        """Return the bytes read for one token with `before` others in its cache, of `together` answers at once."""
        return self.read_bytes / together + self.shape.kv_values() * before * self.kv_bytes


def mean_before(prompt: float, output: float) -> float:
    """Return how many tokens the cache holds on average while an answer's tokens after the first are computed."""
    return prompt + output / 2


def mbu(
    traffic: Traffic,
    tokens_s: float,
    ceilings: Ceilings | None,
    *,
    prompt: float,
    output: float,
    together: float = 1.0,
) -> Field:
    """Return the share of the memory bandwidth that decoding at `tokens_s` takes, of all answers together."""
    if ceilings is None:
        return UNMEASURED
    moved = traffic.token_bytes(mean_before(prompt, output), together)
    return _share(moved * tokens_s, bandwidth_at(ceilings.bandwidth, traffic.read_bytes), "bytes/s")


def mfu(shape: Architecture, prompt: int, seconds: float, precision: str, ceilings: Ceilings | None) -> Field:
    """Return the share of the peak arithmetic in `precision` that a prompt of so many tokens takes in `seconds`."""
    if ceilings is None:
        return UNMEASURED
    peak = ceilings.flops.get(precision, Absent(f"no ceiling was measured in {precision}"))
    return peak if isinstance(peak, Absent) else _share(shape.flops(prompt) / seconds, peak.value, "FLOP/s")


def _share(rate: float, most: float, unit: str) -> Field:
    share = rate / most
    if share <= 1 + TOLERANCE:
        return Measured(share, "share")
    said = f"{rate:.3g} {unit} were reached and {most:.3g} {unit} measured as the most"
    return Absent(f"above 1, which cannot be: {said}; measure the ceilings again on a quiet machine")


def shares(
    traffic: Traffic,
    ceilings: Ceilings | None,
    *,
    prompt: int,
    output: int,
    tokens_s: Field,
    prefill_s: Field,
    precision: str,
    together: float = 1.0,
) -> Mapping[str, Field]:
    """Return `mbu` of the decoding and `mfu` of the prefill; a rate that is absent gives its reason."""
    if isinstance(tokens_s, Measured):
        found = mbu(traffic, tokens_s.value, ceilings, prompt=prompt, output=output, together=together)
    else:
        found = tokens_s
    used = (
        mfu(traffic.shape, prompt, prefill_s.value, precision, ceilings)
        if isinstance(prefill_s, Measured)
        else prefill_s
    )
    return {"mbu": found, "mfu": used}
