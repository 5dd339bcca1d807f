"""The monitor without a terminal: one line a tick, `name=value` words that a pipe can cut apart.

The main figures only, unless all are asked for: loads, the clocks that they are shares of, power as far as it is a
total, the zone that is nearest to its trip, free memory.
"""

from __future__ import annotations

import time

from edgescope.devices.base import ChannelSpec
from edgescope.monitor.frame import TOTALS, View, nearest, temperatures
from edgescope.units import short

_UNITS = ("share", "Hz", "W", "degC", "byte")


def line(view: View, now: float, *, everything: bool = False, tenths: bool = False) -> str:
    """Return this moment, `now` in Unix seconds, as one line: the time, what was measured, throttling, the trial."""
    words = [time.strftime("%H:%M:%S", time.localtime(now)) + (f".{int(now * 10) % 10}" if tenths else "")]
    shown = view.channels if everything else _main(view)
    for name, spec in shown.items():  # always in this order, so that columns line up
        if name in view.values and spec.unit in _UNITS:
            words.append(f"{_label(name)}={short(view.values[name], spec.unit).replace(' ', '')}")
    held = [n.removeprefix("throttled_") for n, v in view.values.items() if n.startswith("throttled_") and v]
    flags = any(n.startswith("throttled_") for n in view.values)
    words.append(f"throttle={','.join(held) or ('none' if flags else 'unknown')}")
    words.append(f"trial={view.trial.what.replace(' ', '/')}" if view.trial else "trial=none")
    return " ".join(words)


def _main(view: View) -> dict[str, ChannelSpec]:
    """Return the channels of the main figures; every rail where no total is known."""
    watts = {n for n, c in view.channels.items() if c.unit == "W" and not n.endswith("_average_w")}
    totals = {n for n in watts if view.channels[n].scope in TOTALS} or watts
    zones = temperatures(view)
    heat = {nearest(view, zones)} if zones else set()
    return {n: c for n, c in view.channels.items() if n in totals | heat or _is_main(n)}


def _is_main(name: str) -> bool:
    if name in ("cpu_freq_hz", "mem_available_bytes"):
        return True
    own = name.startswith(("cpu_busy", "gpu"))
    return own and name.endswith(("_busy", "_clock_hz")) and "_memory_" not in name


def _label(name: str) -> str:
    for ending in ("_hz", "_w", "_c", "_bytes"):
        name = name.removesuffix(ending)
    return name
