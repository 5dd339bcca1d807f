"""Values in seven columns: `612 MHz`, `4.97 W`, `37 %`; scaled with the tables that every verb prints with."""

from __future__ import annotations

import re

_STEPS = {
    "byte": ((1e9, "GB"), (1e6, "MB"), (1e3, "kB"), (1.0, "B")),
    "Hz": ((1e9, "GHz"), (1e6, "MHz"), (1e3, "kHz"), (1.0, "Hz")),
    "W": ((1.0, "W"), (1e-3, "mW")),
}
_WORDS = {"degC": "C"}


def short(value: float, unit: str) -> str:
    """Return `value` with three significant digits and a scaled unit."""
    if unit == "share":
        return f"{100 * value:.0f} %"
    if unit in ("1", "1/min"):
        return f"{value:.4g} {'rpm' if unit == '1/min' else ''}".rstrip()
    steps = _STEPS.get(unit, ((1.0, _WORDS.get(unit, unit)),))
    whole = unit in ("byte", "Hz")
    factor, word = next((s for s in steps if abs(value) >= s[0]), steps[-1] if value or whole else steps[0])
    scaled = value / factor
    digits = (
        0
        if abs(scaled) >= 100 or (whole and factor == 1)
        else 1
        if abs(scaled) >= 10 or unit == "degC"
        else 2
    )
    return f"{scaled:.{digits}f} {word}".rstrip()


_SECONDS = re.compile(r"(\d+(?:\.\d+)?)(ms|s|m|min)?")
_FACTOR = {None: 1.0, "ms": 1e-3, "s": 1.0, "m": 60.0, "min": 60.0}


def seconds(text: str) -> float:
    """Read `5`, `5s`, `500ms` or `2min` as seconds; ValueError for anything else."""
    match = _SECONDS.fullmatch(text.strip())
    if not match:
        raise ValueError(f"{text!r} is not a time; write 5s, 500ms or 2min")
    return float(match[1]) * _FACTOR[match[2]]


def lasting(seconds: float) -> str:
    """Return a duration as a person says it: `40 s`, `12 min`, `3 h 20 min`."""
    if seconds < 99.5:
        return f"{seconds:.0f} s"
    minutes = round(seconds / 60)
    return f"{minutes} min" if minutes < 100 else f"{minutes // 60} h {minutes % 60} min"
