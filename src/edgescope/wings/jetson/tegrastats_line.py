"""One line of NVIDIA's tegrastats, of any release from L4T R28 to R39, as named values in SI units.

A line is a row of items; each has a name and a form:

    RAM 2448/62840MB (lfb 2x4MB)           used and total; largest free block: how many, how large
    SWAP 0/31420MB (cached 0MB)            IRAM 0/252kB(lfb 252kB)
    CPU [2%@729,off]                       load of a core at its own clock in MHz; cpu [17%,11%]@1734 before R28.2
    EMC_FREQ 0%@2133                       load relative to the clock of the moment; the clock for root only
    GR3D_FREQ 0%@[305,305]                 one clock a GPC; Thor prints the clocks alone: @[314,314,314]
    NVENC 79%@166, NVENC0_FREQ @1556, NVENC off, VIC_FREQ 115, APE 174, PVA0_FREQ [0%,0%@1215], MTS fg 0% bg 0%
    CPU@44.4C, cpu@34.3C/34.8C             temperature, and since R39 its maximum; -256C is a sensor without power
    VDD_IN 4915mW/4915mW, GPU 467/467      power now and averaged since the start, mW with or without the unit;
                                           since R39 a maximum follows; a rail that idles may be below 0

From R35 on the date comes first. A logger (journald, syslog, `ts`, `date`, Python's logging, docker, a CSV file) may
have put its own time before the line, and then that counts:

    2026-11-23T03:08:01.123+00:00, 2026-11-23 03:08:01,123     a date, the year first
    Nov 23 03:08:01, Mon Nov 23 03:08:01 UTC 2026              syslog, ts, date
    1763867281.123456, 1763867281123                           seconds (milli, micro, nano) since 1970
    03:08:01, 00:00:01.5                                       time of day, or ts -s
    [ 1234.567890], 0.101                                      seconds since some start

The text around it (a host, a unit, a level) belongs to the logger. 11/23/2026 is not read: the order is unknown.

Nothing is dropped: an item whose form is not known stays in the line as text, with no field. tegrastats' MB
is 2^20 bytes. Sources: the tegrastats pages of the Jetson Linux and DRIVE OS guides, and lines that users
published (tests/wings/jetson/tegrastats_lines.toml names each).
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from datetime import datetime, timedelta, timezone

from edgescope.devices.base import Unsupported

_N = r"[0-9]{1,9}(?:\.[0-9]{1,6})?"
"""A number; a longer one is not a reading, and would become infinite."""
_SIGNED = rf"-?{_N}"
"""A power or a temperature: the monitor of an idle rail may read a little below 0 (VDD_GPU -392mW on a Thor)."""
_NAME = r"[A-Za-z][A-Za-z0-9_]{0,40}"
_BYTES = {"B": 1, "kB": 1 << 10, "MB": 1 << 20, "GB": 1 << 30}
_PER_WATT = {"": 1e3, "mW": 1e3, "W": 1.0}
_POWERED_OFF_C = -200.0
"""A powered-off thermal sensor reads -256 C; no real part is this cold."""
_OFFLINE = Unsupported("the core is offline")
_ENGINE_OFF = Unsupported("the engine is powered off")
_NOT_CONNECTED = Unsupported("the sensor's channel is not connected (NC)")


@dataclass(frozen=True, slots=True)
class Field:
    """One value: channel name, unit and kind as in ChannelSpec, and the label that tegrastats printed."""

    channel: str
    unit: str
    kind: str
    label: str
    value: float | Unsupported
    at: int
    """The position of its text in the line."""


@dataclass(frozen=True, slots=True)
class Item:
    """One name with its values, as printed; without fields if its form is not known."""

    text: str
    fields: tuple[Field, ...] = ()


@dataclass(frozen=True, slots=True)
class Line:
    """A parsed line; the joined texts of its items are the line without dates, a logger's text and spaces."""

    items: tuple[Item, ...]
    stamp: Stamp | None = None
    """The time of a logger if one stands before the line, else the board's (printed from R35 on)."""

    @property
    def when(self) -> datetime | None:
        """Return the date, without a zone unless it states one."""
        return self.stamp.when if self.stamp else None

    @property
    def fields(self) -> tuple[Field, ...]:
        """Return every value."""
        return tuple(f for item in self.items for f in item.fields)

    @property
    def unknown(self) -> tuple[str, ...]:
        """Return the texts that could not be read."""
        return tuple(item.text for item in self.items if not item.fields)


def parse(text: str) -> Line:
    """Return the parsed line; never raises. A text that is not a tegrastats line has no fields."""
    stamp, before, begin, end = _begun(text)
    items = _items(text, 0, before) + _items(text, begin, end)
    return Line(_named_apart(items), stamp)


def _begun(text: str) -> tuple[Stamp | None, int, int, int]:
    """Return (the line's time, the end of unknown text, the start and end of tegrastats' items)."""
    end = len(text)
    found = _HEAD.search(text, 0, _LONGEST_PREFIX) or _DATE.match(text)
    if not found:
        return None, 0, 0, end
    own = _date(found["date"])
    begin = found.end("date") if own else found.start()
    prefix = text[: found.start()]
    if not prefix.strip():
        return board_stamp(own) if own else None, 0, begin, end
    logged = logger_stamp(prefix, own.year if own else 0)
    if logged is None or any(item.fields for item in _items(text, 0, found.start())):
        return (board_stamp(own), found.start(), begin, end) if own else (None, 0, 0, end)
    quote = prefix.rstrip()[-1]
    return logged, 0, begin, text.index(quote, begin) if quote in "\"'" and quote in text[begin:] else end


def _items(text: str, at: int, end: int) -> list[Item]:
    items = []
    while (found := _SPACE.match(text, at, end)) and found.end() < end:
        at = found.end()
        item = _item(text, at, end)
        at += len(item.text)
        items.append(item)
    return items


def _item(text: str, at: int, end: int) -> Item:
    begin = _BEGIN.match(text, at, end)
    for form, fields_of in _FORMS_BY_FIRST.get(begin["first"], ()) if begin else ():
        if found := form.match(text, at, end):
            fields = tuple(fields_of(found))
            if fields:
                return Item(found.group(), fields)
    return Item(_WORD.match(text, at, end)[0])  # type: ignore[index]  # _SPACE ends before a word


def _named_apart(items: list[Item]) -> tuple[Item, ...]:
    """Number channels that occur twice: two rails may be called NC."""
    names = [f.channel for item in items for f in item.fields]
    if len(set(names)) == len(names):
        return tuple(items)
    seen: dict[str, int] = {}
    out = []
    for item in items:
        fields = []
        for f in item.fields:
            seen[f.channel] = n = seen.get(f.channel, 0) + 1
            stem, _, unit = f.channel.rpartition("_")
            fields.append(f if n == 1 else replace(f, channel=f"{stem}_{n}_{unit}"))
        out.append(Item(item.text, tuple(fields)))
    return tuple(out)


_SPACE = re.compile(r"\s*(?=\S)")
_WORD = re.compile(r"\S+")
_OWN = r"(?P<date>[0-9]{2}-[0-9]{2}-[0-9]{4} [0-9]{2}:[0-9]{2}:[0-9]{2})"
"""R35 and later put the date first."""
_DATE = re.compile(rf"\s*{_OWN}(?=\s|$)")
_HEAD = re.compile(rf"(?:^|(?<=[\s\"',;:|\]]))(?:{_OWN}\s+)?(?:(?:RAM|IRAM|SWAP)\s+[0-9]|(?:CPU|cpu)\s*\[)")
"""How tegrastats' own text begins, in every release."""
_LONGEST_PREFIX = 400


def _date(text: str | None) -> datetime | None:
    try:
        return datetime.strptime(text, "%m-%d-%Y %H:%M:%S") if text else None
    except ValueError:
        return None


def _memory(m: re.Match[str]) -> Iterator[Field]:
    name, unit = m["name"].lower(), _BYTES[m["unit"]]
    for group, what in (("used", "used"), ("total", "total")):
        yield Field(
            f"{name}_{what}_bytes", "byte", "gauge", m["name"], float(m[group]) * unit, m.start(group)
        )
    if m["count"]:
        yield Field(f"{name}_free_blocks", "1", "gauge", "lfb", float(m["count"]), m.start("count"))
    if m["extra"]:
        what = "cached" if m["word"] == "cached" else "free_block"
        size = float(m["extra"]) * _BYTES[m["extra_unit"]]
        yield Field(f"{name}_{what}_bytes", "byte", "gauge", m["word"], size, m.start("extra"))


def _cores(m: re.Match[str]) -> Iterator[Field]:
    """Yield load and clock of each core; nothing if one entry is not understood."""
    entries = [_CORE.fullmatch(entry) for entry in m["list"].split(",")]
    if not m["list"].strip() or None in entries:
        return
    at = m.start("list")
    for core, found in enumerate(e for e in entries if e):
        yield from _core(core, found, at, m)
        at += len(found.group()) + 1


def _core(core: int, found: re.Match[str], at: int, m: re.Match[str]) -> Iterator[Field]:
    busy, clock, clock_at = found["busy"], found["clock"], at + found.start("clock")
    if not clock:
        clock, clock_at = m["clock"], m.start("clock")
    at += len(found.group()) - len(found.group().lstrip())
    if not busy:
        clock, clock_at = "", at
    share = float(busy) / 100 if busy else _OFFLINE
    yield Field(f"cpu{core}_busy", "share", "interval", "CPU", share, at)
    if clock or not busy:
        hertz = float(clock) * 1e6 if clock else _OFFLINE
        yield Field(f"cpu{core}_clock_hz", "Hz", "gauge", "CPU", hertz, clock_at)


_CORE = re.compile(rf"\s*(?:(?P<busy>{_N})%(?:@(?P<clock>{_N}))?|off|)\s*")
"""The guides print nothing for a core that is off."""


def _mts(m: re.Match[str]) -> Iterator[Field]:
    for group, name in (("fg", "foreground"), ("bg", "background")):
        yield Field(f"mts_{name}_busy", "share", "average", "MTS", float(m[group]) / 100, m.start(group))


def _temperature(m: re.Match[str]) -> Iterator[Field]:
    name = f"temperature_{m['name'].lower()}"
    yield Field(f"{name}_c", "degC", "gauge", m["name"], _powered(m["now"]), m.start("now"))
    if m["max"]:
        yield Field(f"{name}_max_c", "degC", "gauge", m["name"], _powered(m["max"]), m.start("max"))


def _powered(text: str) -> float | Unsupported:
    value = float(text)
    return value if value > _POWERED_OFF_C else Unsupported(f"the sensor is powered off (reads {text} C)")


def _rail(m: re.Match[str]) -> Iterator[Field]:
    unit = _PER_WATT[m["unit"]]
    for group, name, kind in (
        ("now", "power_w", "gauge"),
        ("mean", "power_since_start_w", "average"),
        ("max", "power_max_w", "gauge"),
    ):
        if m[group]:
            watts = _NOT_CONNECTED if m["name"] == "NC" else float(m[group]) / unit
            yield Field(f"{m['name'].lower()}_{name}", "W", kind, m["name"], watts, m.start(group))


_ENGINES = {"emc": "emc", "gr3d": "gpu", "ape": "ape", "avp": "avp", "vde": "vde", "msenc": "nvenc0"}
"""Engine -> the channel's first word if it is not the engine's name with its number; MSENC is the older NVENC."""


def engine(name: str) -> str:
    """Return the first word of an engine's channel: NVDLA0 -> dla0, VIC_FREQ -> vic0, GR3D_FREQ -> gpu."""
    word = name.lower().removesuffix("_freq").removesuffix("_load")
    word = word.replace("nvdla", "dla")
    return _ENGINES.get(word) or (word if word[-1].isdigit() else f"{word}0")


def _engine(m: re.Match[str]) -> Iterator[Field]:
    name, label = engine(m["name"]), m["name"]
    if m["off"]:
        for what, unit, kind in (("busy", "share", "average"), ("clock_hz", "Hz", "gauge")):
            yield Field(f"{name}_{what}", unit, kind, label, _ENGINE_OFF, m.start("off"))
    if m["busy"]:
        share = float(m["busy"]) / 100
        yield Field(f"{name}_busy", "share", "average", label, share, m.start("busy"))
    if m["clock"]:
        yield Field(f"{name}_clock_hz", "Hz", "gauge", label, float(m["clock"]) * 1e6, m.start("clock"))
    if m["clocks"] is not None:
        yield from _clusters(name, m)


def _clusters(name: str, m: re.Match[str]) -> Iterator[Field]:
    """Yield the clock of each GPC, and the GPU's clock if they all agree."""
    found = [(n.group(), m.start("clocks") + n.start()) for n in re.finditer(_N, m["clocks"])]
    clocks = [float(text) * 1e6 for text, _ in found]
    one: float | Unsupported = clocks[0]
    if len(set(clocks)) > 1:
        one = Unsupported("its clusters run at different clocks")
    yield Field(f"{name}_clock_hz", "Hz", "gauge", m["name"], one, found[0][1])
    if len(clocks) > 1:
        for i, (hertz, (_, at)) in enumerate(zip(clocks, found, strict=True)):
            yield Field(f"{name}_gpc{i}_clock_hz", "Hz", "gauge", m["name"], hertz, at)


def _parts(m: re.Match[str]) -> Iterator[Field]:
    """Yield the load of each part of an engine (the two vector units of a PVA) and their clock."""
    name, at = engine(m["name"]), m.start("parts")
    for i, found in enumerate(re.finditer(rf"({_N})%(?:@({_N}))?", m["parts"])):
        share = float(found[1]) / 100
        yield Field(f"{name}_{i}_busy", "share", "average", m["name"], share, at + found.start(1))
        if found[2]:
            hertz = float(found[2]) * 1e6
            yield Field(f"{name}_clock_hz", "Hz", "gauge", m["name"], hertz, at + found.start(2))


def _bare_clock(m: re.Match[str]) -> Iterator[Field]:
    hertz = float(m["clock"]) * 1e6
    yield Field(f"{engine(m['name'])}_clock_hz", "Hz", "gauge", m["name"], hertz, m.start("clock"))


_CLOCKED = rf"(?:{_NAME}_FREQ|(?:APE|AVP|VDE|VIC|NVENC|NVDEC|NVJPG|NVDLA|MSENC|OFA|PVA|SE)[0-9]?)"
"""Names whose bare number is a clock in MHz; for another name it could be anything."""
_RAIL = r"(?:(?:VDD|VIN|POM|SYS)[A-Z0-9_]*|GPU|CPU|SOC|CV|NC)"
"""Names whose two numbers without a unit are a rail's milliwatts; for another name it could be anything."""
_LIST = rf"\s*{_N}(?:\s*,\s*{_N})*\s*"
_LOADS = rf"{_N}%(?:@{_N})?"
_DIGITS = "0123456789"
_BEGIN = re.compile(rf"(?:{_NAME})?\s*(?P<first>\S)")
FieldsOf = Callable[[re.Match[str]], Iterator[Field]]


def _form(firsts: str, pattern: str, fields_of: FieldsOf) -> tuple[str, re.Pattern[str], FieldsOf]:
    """Return a form together with the characters that its value may begin with."""
    return firsts, re.compile(pattern + r"(?=\s|$)"), fields_of


_FORMS = (
    _form("@", rf"(?P<name>{_NAME})@(?P<now>{_SIGNED})C(?:/(?P<max>{_SIGNED})C)?", _temperature),
    _form(
        _DIGITS + "-",
        rf"(?P<name>{_NAME})\s+(?P<now>{_SIGNED})(?P<unit>mW|W)(?:/(?P<mean>{_SIGNED})(?P=unit))?"
        rf"(?:/(?P<max>{_SIGNED})(?P=unit))?",
        _rail,
    ),
    _form(
        _DIGITS + "@oO",
        rf"(?P<name>{_NAME})\s+(?:(?P<off>off|OFF)|"
        rf"(?=[0-9@])(?:(?P<busy>{_N})%)?(?:@(?:(?P<clock>{_N})|\[(?P<clocks>{_LIST})\]))?)",
        _engine,
    ),
    _form(
        _DIGITS + "-",
        rf"(?P<name>{_RAIL})\s+(?P<now>{_SIGNED})(?P<unit>)/(?P<mean>{_SIGNED})(?:/(?P<max>{_SIGNED}))?",
        _rail,
    ),
    _form(_DIGITS, rf"(?P<name>{_CLOCKED})\s+(?P<clock>{_N})", _bare_clock),
    _form("[", r"(?:(?:CPU|cpu)\s+)?\[(?P<list>[^\[\]]{0,4000})\]" + rf"(?:@(?P<clock>{_N}))?", _cores),
    _form(
        _DIGITS,
        rf"(?P<name>RAM|SWAP|IRAM)\s+(?P<used>{_N})/(?P<total>{_N})(?P<unit>[kMG]?B)"
        rf"(?:\s*\((?P<word>lfb|cached)\s+(?:(?P<count>{_N})x)?(?P<extra>{_N})(?P<extra_unit>[kMG]?B)\))?",
        _memory,
    ),
    _form("f", rf"MTS\s+fg\s+(?P<fg>{_N})%\s+bg\s+(?P<bg>{_N})%", _mts),
    _form("[", rf"(?P<name>{_NAME})\s+\[(?P<parts>{_LOADS}(?:\s*,\s*{_LOADS})*)\]", _parts),
)
_FORMS_BY_FIRST = {
    first: tuple((form, fields_of) for firsts, form, fields_of in _FORMS if first in firsts)
    for first in f"@[f{_DIGITS}-oO"
}


# -- the time that a logger put before the line

DAY_S = 86_400.0
_EPOCH = datetime(1970, 1, 1)
_MONTHS = ("Jan", "Feb", "Mar", "Apr", "May", "Jun", "Jul", "Aug", "Sep", "Oct", "Nov", "Dec")
_LEAP_YEAR = 2000
"""Stands for a year that is not printed, so that 29 February is a date."""
_TIME = (
    r"(?P<h>[0-9]{2}):(?P<m>[0-9]{2}):(?P<s>[0-9]{2})"
    r"(?:\.(?P<fraction>[0-9]{1,9})|,(?P<ms>[0-9]{3}))?(?![0-9]|:[0-9])"
)
"""After a comma, milliseconds only: in a CSV file it may end the field."""
_ZONE = r"(?: ?(?P<zone>Z|UTC|GMT|[+-][0-9]{2}:?[0-9]{2})(?![0-9A-Za-z]))?"
_DATED = re.compile(
    rf"(?<![0-9])(?P<year>[0-9]{{4}})[-/](?P<month>[0-9]{{2}})[-/](?P<day>[0-9]{{2}})[ T_]{_TIME}{_ZONE}"
)
_NAMED = re.compile(
    rf"(?<![A-Za-z])(?P<name>{'|'.join(_MONTHS)}) +(?P<day>[0-9]{{1,2}}) +{_TIME}{_ZONE}"
    r"(?: (?:[A-Z]{2,5} )?(?P<year>(?:19|20)[0-9]{2})(?![0-9]))?"
)
_OPEN = r"\s*(?:[0-9]{1,9}[,;\t])?[\s\"'(]*"
"""Text that may precede a bare number: the row's number, a quote."""
_CLOSED = r"(?=[\s\])\"',;:]|$)"
_SINCE_1970 = re.compile(
    _OPEN + r"\[?(?P<seconds>[0-9]{9,10}(?:\.[0-9]{1,9})?|[0-9]{13}|[0-9]{16}|[0-9]{19})" + _CLOSED
)
_OF_DAY = re.compile(_OPEN + r"\[?" + _TIME)
_SINCE_START = re.compile(_OPEN + r"\[? *(?P<seconds>[0-9]{1,8}\.[0-9]{1,9})" + _CLOSED)


@dataclass(frozen=True, slots=True)
class Stamp:
    """One moment on a logger's clock."""

    seconds: float
    """Seconds since 1970 for a date (in UTC if it states its zone), else since midnight or an unknown start."""
    clock: str
    """The clock in words."""
    exact: bool
    """Whether it is finer than whole seconds."""
    when: datetime | None = None
    """The date as printed; None if there is no date, or no year in it."""
    period_s: float = 0.0
    """Period after which the clock restarts: a day without a date, a year without a year; 0: never."""


def logger_stamp(text: str, year: int = 0) -> Stamp | None:
    """Return the time in a logger's text before a line, or None if its form is not known.

    `year` is the line's own, for a logger that prints none.
    """
    try:
        for form, read in ((_DATED, _dated), (_NAMED, _dated)):
            if found := form.search(text):
                return read(found, year)
        if found := _SINCE_1970.match(text):
            return _since_1970(found["seconds"])
        if found := _OF_DAY.match(text):
            seconds = int(found["h"]) * 3600 + int(found["m"]) * 60 + int(found["s"]) + _fraction(found)
            return Stamp(
                seconds,
                "the logger's time of day, or time since it began",
                _exact(found),
                None,
                DAY_S,
            )
        if found := _SINCE_START.match(text):
            return Stamp(float(found["seconds"]), "the logger's seconds since it began", True)
    except (ValueError, OverflowError):  # the 45th of the 13th month
        pass
    return None


def board_stamp(when: datetime) -> Stamp:
    """Return the stamp of a date that the board itself printed."""
    return Stamp((when - _EPOCH).total_seconds(), "the board's wall clock", False, when)


def _dated(found: re.Match[str], year: int) -> Stamp:
    parts = found.groupdict()
    month = int(parts["month"]) if parts.get("month") else _MONTHS.index(parts["name"]) + 1
    known = int(parts["year"] or year)
    hour, minute, second = (int(found[part]) for part in "hms")
    when = datetime(known or _LEAP_YEAR, month, int(found["day"]), hour, minute, second)
    when += timedelta(seconds=_fraction(found))
    got = Stamp((when - _EPOCH).total_seconds(), "the logger's wall clock", _exact(found), when)
    if not known:
        return replace(got, when=None, period_s=366 * DAY_S)
    if not found["zone"]:
        return got
    offset = _offset(found["zone"])
    aware = when.replace(tzinfo=timezone(offset))
    return replace(got, seconds=got.seconds - offset.total_seconds(), when=aware)


def _offset(zone: str) -> timedelta:
    if zone[0] not in "+-":
        return timedelta(0)
    away = timedelta(hours=int(zone[1:3]), minutes=int(zone[-2:]))
    return -away if zone[0] == "-" else away


def _fraction(found: re.Match[str]) -> float:
    digits = found["fraction"] or found["ms"]
    return float(f"0.{digits}") if digits else 0.0


def _exact(found: re.Match[str]) -> bool:
    return bool(found["fraction"] or found["ms"])


def _since_1970(digits: str) -> Stamp:
    whole, _, rest = digits.partition(".")
    scale = 10 ** max(0, len(whole) - 10)  # 13 digits are ms, 16 us, 19 ns
    seconds = int(whole) / scale + (float(f"0.{rest}") if rest else 0.0)
    when = datetime.fromtimestamp(seconds, timezone.utc)
    return Stamp(seconds, "the logger's wall clock", scale > 1 or bool(rest), when)
