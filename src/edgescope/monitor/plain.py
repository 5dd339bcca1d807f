"""The monitor without a terminal: one line a tick, `name=value` words that a pipe can cut apart."""

from __future__ import annotations

import time

from edgescope.monitor.frame import View
from edgescope.monitor.units import short

_UNITS = ("share", "Hz", "W", "degC", "byte")


def line(view: View) -> str:
    """Return this moment as one line: the time, every metric that was measured, throttling, the trial."""
    words = [time.strftime("%H:%M:%S")]
    for name, spec in view.channels.items():  # always in this order, so that columns line up
        if name in view.values and spec.unit in _UNITS:
            words.append(f"{_label(name)}={short(view.values[name], spec.unit).replace(' ', '')}")
    held = [n.removeprefix("throttled_") for n, v in view.values.items() if n.startswith("throttled_") and v]
    flags = any(n.startswith("throttled_") for n in view.values)
    words.append(f"throttle={','.join(held) or ('none' if flags else 'unknown')}")
    words.append(f"trial={view.trial.what.replace(' ', '/')}" if view.trial else "trial=none")
    return " ".join(words)


def _label(name: str) -> str:
    for ending in ("_hz", "_w", "_c", "_bytes"):
        name = name.removesuffix(ending)
    return name
