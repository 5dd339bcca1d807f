"""Numbers as a person reads them: the only place where an SI value gets a prefix, digits and an interval.

    show, why, ratio       one figure with a unit of its own: `1.82 ms [1.8, 1.84]`, `8.31x [8.02, 8.6]`
    cell                   the same in a column whose heading has the unit or needs none: `519`, `93.8 %`
    column -> Format       the figures of one column in one unit with as many decimals, to be compared by eye
    text, short, lasting   a bare number: `20 Mbit/s`; in seven columns: `37 %`; of waiting: `3 h 5 min`

Values are SI everywhere else. What is absent is its reason, never 0.
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace

from edgescope.records import Absent, Field, Json, Measured

_BYTES = ((1e-9, "GB"), (1e-6, "MB"), (1e-3, "kB"), (1.0, "B"))
#: unit -> (factor, shown unit) from the largest down; the first whose scaled value reaches 1 is used.
STEPS: Mapping[str, tuple[tuple[float, str], ...]] = {
    "s": ((1.0, "s"), (1e3, "ms"), (1e6, "us"), (1e9, "ns")),
    "bytes": _BYTES,
    "byte": _BYTES,
    "Hz": ((1e-9, "GHz"), (1e-6, "MHz"), (1e-3, "kHz"), (1.0, "Hz")),
    "bit/s": ((1e-9, "Gbit/s"), (1e-6, "Mbit/s"), (1e-3, "kbit/s"), (1.0, "bit/s")),
    "share": ((100.0, "%"),),
    "J": ((1.0, "J"), (1e3, "mJ"), (1e6, "uJ")),
    "W": ((1.0, "W"), (1e3, "mW")),
}
#: Units that say nothing beside a number.
BARE = {"1": "", "queries": "", "ratio": "", "score": ""}


def scale(value: float, unit: str) -> tuple[float, str]:
    """Return (factor, unit) that shows `value` with one to three digits before the point; 0 has no prefix."""
    steps = STEPS.get(unit)
    if steps is None:
        return 1.0, BARE.get(unit, unit)
    if value == 0:
        return next((step for step in steps if step[0] == 1), steps[-1])
    return next(((f, u) for f, u in steps if abs(value) * f >= 1), steps[-1])


def number(value: float, digits: int = 3) -> str:
    """Return `value` with three significant digits, more for large whole parts."""
    if value == 0:
        return "0"
    return f"{value:.0f}" if abs(value) >= 10**digits - 0.5 else f"{value:.{digits}g}"


def text(value: float, unit: str, digits: int = 3) -> str:
    """Return a value with its unit: `20 Mbit/s`, `1.5 s`."""
    factor, word = scale(value, unit)
    return f"{number(value * factor, digits)} {word}".strip()


def show(field: Field | None, *, interval: bool = True, digits: int = 3) -> str:
    """Return `1.82 ms [1.80, 1.84]`, or `n/a` for what is absent (the reason stands elsewhere)."""
    if field is None or isinstance(field, Absent):
        return "n/a"
    factor, _ = scale(field.value, field.unit)
    return text(field.value, field.unit, digits) + (_ends(field, factor, digits=digits) if interval else "")


def why(field: Field | None, digits: int = 3) -> str:
    """Return the value, or the reason why there is none."""
    return field.reason if isinstance(field, Absent) else show(field, digits=digits)


def ratio(field: Field, *, interval: bool = True, decimals: int | None = None) -> str:
    """Return `8.31x [8.02, 8.6]`; with two decimals where what matters is near 1."""
    if isinstance(field, Absent):
        return "n/a"
    head = number(field.value) if decimals is None else f"{field.value:.{decimals}f}"
    return f"{head}x" + (_ends(field, 1.0, decimals) if interval else "")


def cell(field: Field | None, unit: str, *, interval: bool = False) -> str:
    """Return a figure in a column of `unit`: a ratio as `8.17x`, a rate without the unit of its heading."""
    if unit == "ratio" and field is not None:
        return ratio(field, interval=interval)
    if unit == "share" and isinstance(field, Measured) and field.unit != "score":
        field = replace(field, unit=unit)  # a gate's shares are plain numbers
    return show(field, interval=interval).replace(" samples/s", "", 1)


def _ends(field: Measured, factor: float, decimals: int | None = None, digits: int = 3) -> str:
    if field.lo is None or field.hi is None:
        return ""
    ends = (field.lo * factor, field.hi * factor)
    lo, hi = (number(end, digits) if decimals is None else f"{end:.{decimals}f}" for end in ends)
    return f" [{lo}, {hi}]"


def lasting(seconds: float) -> str:
    """Return `40 s`, `12 min` or `3 h 5 min`."""
    if seconds < 99.5:
        return f"{seconds:.0f} s"
    minutes = round(seconds / 60)
    return f"{minutes} min" if minutes < 100 else f"{minutes // 60} h {minutes % 60} min"


def remaining(seconds: float | None, spent: float = 0.0) -> str:
    """Return `, about 40 s left`; without an estimate, or once it is used up, the time so far: `, 12 s so far`."""
    if seconds is not None and seconds >= 0.5:
        return f", about {lasting(seconds)} left"
    so_far = f", {lasting(spent)} so far" if spent >= 0.5 else ""
    return so_far if seconds is None else f"{so_far}, past its time: what has begun ends first"


_SECONDS = re.compile(r"(\d+(?:\.\d+)?)(ms|s|m|min)?")
_FACTOR = {None: 1.0, "ms": 1e-3, "s": 1.0, "m": 60.0, "min": 60.0}


def seconds(text: str) -> float:
    """Read `5`, `5s`, `500ms` or `2min` as seconds; ValueError for anything else."""
    match = _SECONDS.fullmatch(text.strip())
    if not match:
        raise ValueError(f"{text!r} is not a time; write 5s, 500ms or 2min")
    return float(match[1]) * _FACTOR[match[2]]


def ranges(numbers: Iterable[int]) -> str:
    """Return a list as the kernel writes it: 0-3,8."""
    parts: list[list[int]] = []
    for n in sorted(set(numbers)):
        if parts and parts[-1][-1] == n - 1:
            parts[-1] = [parts[-1][0], n]
        else:
            parts.append([n])
    return ",".join("-".join(map(str, part)) for part in parts)


def counted(count: int, word: str) -> str:
    """Return `1 cell`, `2 cells`, `3 processes`, `4 copies`."""
    if count == 1:
        return f"{count} {word}"
    stem = f"{word[:-1]}ie" if word.endswith("py") else f"{word}e" if word.endswith(("s", "x")) else word
    return f"{count} {stem}s"


def short(value: float, unit: str) -> str:
    """Return `value` in seven columns: `612 MHz`, `4.97 W`, `37 %`."""
    if unit == "share":
        return f"{100 * value:.0f} %"
    if unit in ("1", "1/min"):
        return f"{value:.4g} {'rpm' if unit == '1/min' else ''}".rstrip()
    whole = unit in ("byte", "Hz")
    factor, word = scale(value, unit) if value or whole else (1.0, unit)
    scaled, word = value * factor, {"degC": "C"}.get(word, word)
    few = 0 if abs(scaled) >= 100 or (whole and factor == 1) else 2
    return f"{scaled:.{1 if few and (abs(scaled) >= 10 or unit == 'degC') else few}f} {word}".rstrip()


# -- a column of figures -------------------------------------------------------------------------------------

MAX_DECIMALS = 3


@dataclass(frozen=True)
class Scale:
    """What SI values are multiplied with before they are printed, and the unit they have then."""

    factor: float
    unit: str


@dataclass(frozen=True)
class Format:
    """How one column prints: scale and decimals."""

    scale: Scale
    decimals: int

    @property
    def unit(self) -> str:
        """The unit in print; `` for a plain number."""
        return self.scale.unit

    def number(self, value: float) -> str:
        """Return the scaled value with thousands separated, e.g. `1,204.5`."""
        return f"{value * self.scale.factor:,.{self.decimals}f}"

    def interval(self, field: Measured) -> str:
        """Return `4.58 – 4.65`, or '' where there is no interval."""
        if field.lo is None or field.hi is None or not math.isfinite(field.hi):
            return ""
        return f"{self.number(field.lo)}\u00a0–\u00a0{self.number(field.hi)}"

    def text(self, field: Field) -> str:
        """Return `4.61 ms [4.58 – 4.65]` or the reason why there is no value."""
        if isinstance(field, Absent):
            return absence(field)
        joint = "" if self.unit in ("", "×") else " "
        between = self.interval(field)
        return f"{self.number(field.value)}{joint}{self.unit}" + (f" [{between}]" if between else "")

    def loses(self, field: Measured) -> bool:
        """Return whether the figure would be rounded to 0."""
        return field.value != 0 and not float(self.number(field.value).replace(",", ""))


def absence(field: Absent) -> str:
    """Return the reason, marked as an absence: `unsupported: no powercap zones`."""
    marked = field.reason.startswith(("unsupported", "failed", "n/a", "untrained", "not "))
    return field.reason if marked else f"n/a: {field.reason}"


def exact(field: Measured) -> str:
    """Return six digits in SI with the ends and the count, for whoever hovers."""
    ends = "" if field.lo is None or field.hi is None else f" [{field.lo:.6g}, {field.hi:.6g}]"
    unit = f" {field.unit}" if field.unit not in BARE else ""
    return f"{field.value:.6g}{ends}{unit}, n\u00a0=\u00a0{field.n:,}"


def time_scale(found: Iterable[float]) -> Scale:
    """Return the scale in which the largest time has one to three digits before the point."""
    top = max((v for v in found if math.isfinite(v)), default=0.0)
    for factor, unit in ((1.0, "s"), (1e3, "ms"), (1e6, "µs")):
        if top * factor >= 1:
            return Scale(factor, unit)
    return Scale(1e3, "ms") if top == 0 else Scale(1e9, "ns")


#: unit -> (factor, unit, the unit of a thousand, used where even the smallest fills one)
_COLUMNS: Mapping[str, tuple[float, str, str]] = {"bytes": (1e-6, "MB", "GB"), "J": (1e3, "mJ", "J")}


def column(unit: str, fields: Iterable[Field]) -> Format:
    """Return how a column of these figures prints: one scale, decimals for three digits of the smallest."""
    measured = [f for f in fields if isinstance(f, Measured)]
    found = [f.value for f in measured]
    if unit == "share" and any(
        f.unit == "score" for f in measured
    ):  # a measure of the user's that is no share
        unit = "1"
    if unit == "share":
        return Format(Scale(100.0, "%"), 1)
    look = time_scale(found) if unit == "s" else _scaled(unit, found)
    return Format(look, decimals(v * look.factor for v in found))


def _scaled(unit: str, found: Sequence[float]) -> Scale:
    if unit not in _COLUMNS:
        return Scale(1.0, {"1": "", "ratio": "×"}.get(unit, unit))
    factor, small, big = _COLUMNS[unit]
    whole = bool(found) and min(found) * factor >= 1000
    return Scale(factor / 1000, big) if whole else Scale(factor, small)


def decimals(shown: Iterable[float]) -> int:
    """Return the decimals that give the smallest non-zero value three digits, at most MAX_DECIMALS."""
    smallest = min((abs(v) for v in shown if v and math.isfinite(v)), default=1.0)
    return min(MAX_DECIMALS, max(0, 2 - math.floor(math.log10(smallest))))


def fact(value: Json) -> str:
    """Return a fact of the manifest in print; an unreadable one says why."""
    if isinstance(value, dict):
        if set(value) == {"absent"}:
            return f"absent: {value['absent']}"
        return "; ".join(f"{k}: {fact(v)}" for k, v in value.items()) or "none"
    if isinstance(value, list | tuple):
        return ", ".join(fact(v) for v in value) or "none"
    if isinstance(value, bool):
        return "yes" if value else "no"
    return f"{value:g}" if isinstance(value, float) else str(value)
