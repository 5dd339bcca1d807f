"""Read untrusted JSON into records: every value has its field's type, or a ValueError names the place.

The types are those of the records' own fields, so there is no second description of a result to keep in sync.
"""

from __future__ import annotations

import dataclasses
import functools
import json
import math
import re
from collections.abc import Mapping
from enum import Enum
from typing import Any, TypeVar, get_args, get_origin, get_type_hints

from edgescope.records import Absent, Json, Measured, Trial

Record = TypeVar("Record")

#: Deepest nesting of tables. Our own are seven deep; readers that walk a value must not run out of stack.
DEEPEST = 40
#: Most digits of a whole number: nanoseconds have nineteen, and converting very long ones takes too long.
_DIGITS = 30
_INT64 = 2**63
#: Characters that a terminal would obey instead of printing: control characters, and those that reverse the text.
_OBEYED = re.compile("[\x00-\x08\x0b-\x1f\x7f-\x9f\u202a-\u202e\u2066-\u2069\ud800-\udfff]")

#: What a JSON text has where a string of it might hold one: other bytes than ASCII, or an escape that stands for one.
_MAYBE_OBEYED = re.compile(rb"[\x00-\x08\x0b\x0c\x0e-\x1f\x7f-\xff]|\\[ubfr]")


def parsed(data: bytes) -> Json:
    """Return the value of a JSON text, with characters that a terminal obeys replaced; ValueError if not valid."""
    try:
        found = json.loads(data, parse_int=_whole)
        if _MAYBE_OBEYED.search(data):
            return _tame(found, 0)
        _walked(found, 0)
        return found
    except RecursionError:
        raise ValueError(f"it is nested deeper than {DEEPEST} levels") from None


def _walked(value: Json, depth: int) -> None:
    """Raise ValueError if tables and lists nest too deep."""
    if depth > DEEPEST:
        raise ValueError(f"it is nested deeper than {DEEPEST} levels")
    for item in value.values() if type(value) is dict else value if type(value) is list else ():
        if type(item) in (dict, list):
            _walked(item, depth + 1)


def _whole(digits: str) -> int:
    if len(digits) > _DIGITS:
        raise ValueError(f"a whole number of {len(digits)} digits")
    return int(digits)


def _tame(value: Json, depth: int) -> Json:
    if isinstance(value, str):
        return _OBEYED.sub("\N{REPLACEMENT CHARACTER}", value)
    if depth > DEEPEST:
        raise ValueError(f"it is nested deeper than {DEEPEST} levels")
    if isinstance(value, dict):
        return {_tame(key, depth): _tame(item, depth + 1) for key, item in value.items()}
    if isinstance(value, list):
        return [_tame(item, depth + 1) for item in value]
    return value


def record(kind: type[Record], data: Json, at: str = "") -> Record:
    """Return the dataclass that `data` describes; keys without a default must be there, unknown keys may not.

    Raises ValueError naming the field.
    """
    table(data, at)
    hints = _hints(kind)  # type: ignore[arg-type]
    if unknown := sorted(map(str, set(data) - set(hints))):
        raise ValueError(f"{_named(at)} has the unknown keys {', '.join(unknown)[:80]}")
    given = {name: value(hints[name], item, f"{at}.{name}" if at else name) for name, item in data.items()}
    lacking = sorted(f.name for f in dataclasses.fields(kind) if _needed(f) and f.name not in given)  # type: ignore[arg-type]
    if lacking:
        raise ValueError(f"{_named(at)} lacks {', '.join(lacking)}")
    return kind(**given)


def table(data: Json, at: str) -> Mapping[str, Json]:
    """Return `data` if it is a table; ValueError otherwise."""
    if not isinstance(data, Mapping):
        raise ValueError(f"{_named(at)} must be a table, not {_brief(data)}")
    return data


def field(data: Json, at: str) -> Measured | Absent:
    """Return a measured field or an absent one; a value that is not a finite number becomes absent."""
    if (usual := _usual(data)) is not None:
        return usual
    if "absent" in table(data, at):
        return record(
            Absent, {"reason": data["absent"]} | {k: v for k, v in data.items() if k != "absent"}, at
        )
    found = record(Measured, data, at)
    if not math.isfinite(found.value):
        return Absent(f"the stored value is {found.value}")
    return dataclasses.replace(found, lo=_bound(found.lo), hi=_bound(found.hi))


_MEASURED = {f.name for f in dataclasses.fields(Measured)}
_ENDS = (float, type(None))


def _usual(data: Json) -> Measured | Absent | None:
    """Return a field as edgescope writes it, None for any other: a store of a thousand results holds fifty thousand."""
    if type(data) is not dict:
        return None
    if data.keys() == {"absent"} and type(data["absent"]) is str:
        return Absent(data["absent"])
    if data.keys() != _MEASURED or type(data["value"]) is not float or not math.isfinite(data["value"]):
        return None
    ends = data["lo"], data["hi"]
    plain = type(data["unit"]) is str and type(data["n"]) is int and all(type(end) in _ENDS for end in ends)
    if not plain or any(end is not None and not abs(end) < math.inf for end in ends):
        return None
    return Measured(**data)


def _never(data: Json) -> None:
    return None


def _bound(value: float | None) -> float | None:
    return None if value is None or math.isnan(value) else value


def value(kind: Any, data: Json, at: str) -> Any:
    """Return `data` as `kind`, a type that records' fields have; ValueError if it is not one."""
    origin, args = get_origin(kind), get_args(kind)
    if origin is tuple:
        return tuple(value(args[0], item, f"{at}[{n}]") for n, item in enumerate(_list(data, at)))
    if origin is Mapping:
        usual = _usual if Measured in get_args(args[1]) else _never
        return {
            str(key): usual(item) or value(args[1], item, f"{at}.{key}")
            for key, item in table(data, at).items()
        }
    return _plain(kind, data, at) if origin is None else _one_of(args, data, at)


def _plain(kind: Any, data: Json, at: str) -> Any:
    if kind is Any:
        return data
    if kind is Trial:
        return Trial.from_json(table(data, at))
    if dataclasses.is_dataclass(kind):
        return record(kind, data, at)  # type: ignore[arg-type]
    return kind(scalar(str, data, at)) if issubclass(kind, Enum) else scalar(kind, data, at)


def _one_of(kinds: tuple[Any, ...], data: Json, at: str) -> Any:
    if data is None and type(None) in kinds:
        return None
    if Measured in kinds:
        return field(data, at)
    (kind,) = (k for k in kinds if k is not type(None))
    return value(kind, data, at)


def scalar(kind: type, data: Json, at: str) -> Any:
    """Return a text, number or truth value; a whole number is also a number, a truth value is neither."""
    number = isinstance(data, int | float) and not isinstance(data, bool)
    if kind is float and number and abs(data) < 1e300:
        return data
    if kind is float and isinstance(data, float):  # inf and NaN are the caller's to judge
        return data
    if kind is int and number and math.isfinite(data) and data == int(data) and -_INT64 <= data < _INT64:
        return int(data)
    if kind in (str, bool) and isinstance(data, kind):
        return data
    raise ValueError(f"{_named(at)} must be {_WORDS[kind]}, not {_brief(data)}")


_WORDS = {str: "a text", bool: "true or false", int: "a whole number of 64 bits", float: "a number"}


def _list(data: Json, at: str) -> list[Json]:
    if not isinstance(data, list | tuple):
        raise ValueError(f"{_named(at)} must be a list, not {_brief(data)}")
    return list(data)


def _named(at: str) -> str:
    return at or "the whole"


def _brief(data: Json) -> str:
    return "nothing" if data is None else f"{type(data).__name__} {str(data)[:40]!r}"


@functools.cache
def _hints(kind: type[object]) -> dict[str, Any]:
    return get_type_hints(kind)


def _needed(of: dataclasses.Field[Any]) -> bool:
    return of.default is dataclasses.MISSING and of.default_factory is dataclasses.MISSING
