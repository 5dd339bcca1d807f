"""How near generation comes to what the machine allows: memory bandwidth in decode (MBU), arithmetic in prefill (MFU).

A decoded token reads every weight that it is multiplied with once, and the keys and values of all tokens before it. An
answer that runs alone can be no faster than its bytes over the bandwidth. Answers that run together share the reading
of the weights, not that of their caches. Of an embedding one row is read, except where it is the output layer as well.
A prompt reads the weights once for all its tokens, so it is bound by its products.

The ceilings are measured on the machine (`edgescope doctor --roofline`). A share that is above 1 beyond its uncertainty
cannot be: a ceiling was measured on a busy machine, or a count is wrong. Then no share is given, and E-GEN-6 says so.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import replace

from edgescope.analysis.roofline import Ceilings, bandwidth_at
from edgescope.errors import Message
from edgescope.records import Absent, Field, Measured
from edgescope.wings.generation.memory import UNTOLD, Held

TOLERANCE = 0.02
"""How far above 1 a share may lie by the scatter of the ceiling that it is compared with."""
IMPOSSIBLE = "above 1, which cannot be"


def unmeasured(device: str) -> Absent:
    """Return that the ceilings of a device were not measured, with the command."""
    return Absent(f"this machine's ceilings were not measured: edgescope doctor --roofline {device}")


def token_bytes(held: Held, before: float, together: float = 1.0) -> float:
    """Return the bytes read for one token with `before` others in its cache, of `together` answers at once."""
    return held.read_bytes / together + held.shape.kv_values() * before * held.kv_bytes


def mean_before(prompt: float, output: float) -> float:
    """Return how many tokens the cache holds on average while an answer's tokens after the first are computed."""
    return prompt + output / 2


def mbu(held: Held, rate: Field, most: Ceilings, *, prompt: float, output: float, together: float) -> Field:
    """Return the share of the memory bandwidth that answers take together, each decoding at `rate` tokens a second."""
    if isinstance(rate, Absent):
        return rate
    moved = token_bytes(held, mean_before(prompt, output), together) * together
    return _share(rate, moved, bandwidth_at(most.bandwidth, held.read_bytes), "bytes/s")


def mfu(held: Held, rate: Field, most: Ceilings, prompt: float) -> Field:
    """Return the share of the peak arithmetic that reading prompts at `rate` tokens a second takes."""
    if not held.arithmetic:
        return Absent("the engine does not tell the precision of its arithmetic")
    peak = most.flops.get(held.arithmetic, Absent(f"no ceiling was measured in {held.arithmetic}"))
    if isinstance(peak, Absent) or isinstance(rate, Absent):
        return peak if isinstance(peak, Absent) else rate
    return _share(rate, held.shape.flops(round(prompt)) / prompt, peak.value, "FLOP/s")


def _share(rate: Measured, each: float, most: float, unit: str) -> Field:
    """Return rate x each / most, with the ends of the rate."""
    value, lo, hi = (None if r is None else r * each / most for r in (rate.value, rate.lo, rate.hi))
    assert value is not None
    if (value if lo is None else lo) <= 1 + TOLERANCE:
        return Measured(value, "share", lo, hi, rate.n)
    return Absent(
        f"{IMPOSSIBLE}: {rate.value * each:.3g} {unit} were reached and {most:.3g} measured as the most"
    )


def shares(
    held: Held | None, most: Ceilings | None, found: Mapping[str, Field], *, device: str, together: int
) -> Mapping[str, Field]:
    """Return `mbu` of the decoding and `mfu` of the prefill, from a result's rates and lengths."""
    names = ("mbu", "mfu")
    if held is None or most is None:
        return dict.fromkeys(names, UNTOLD if held is None else unmeasured(device))
    prompt, output = (found.get(name) for name in ("prompt_tokens", "output_tokens"))
    if not isinstance(prompt, Measured) or not isinstance(output, Measured):
        return dict.fromkeys(names, Absent("no answer ended in the window"))
    fields = {"prompt": prompt.value, "output": output.value, "together": together}
    alone = Absent("requests in flight wait for each other's prompts, so no prompt has a time of its own")
    return {
        names[0]: mbu(held, found["decode_tps"], most, **fields),
        names[1]: mfu(held, found["prefill_tps"], most, prompt.value) if together == 1 else alone,
    }


def impossible(found: Mapping[str, Field], device: str) -> Iterator[Message]:
    """Yield an error for each share that cannot be."""
    for name, field in found.items():
        if isinstance(field, Absent) and field.reason.startswith(IMPOSSIBLE):
            yield replace(
                OVER, evidence=f"{name.upper()} {field.reason}", fix=f"edgescope doctor --roofline {device}"
            )


OVER = Message(
    "E-GEN-6",
    "a figure of this run lies above what this machine was measured to do at most",
    effect="No share of that ceiling is given: the ceiling or the rate is wrong",
    fix="edgescope doctor --roofline cpu",
)
