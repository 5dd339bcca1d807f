"""The Jetson modules that edgescope knows (boards.toml as types), and recognising one by its device tree.

A board is recognised by its module's P-number (`nvidia,p3768-0000+p3767-0005`: carrier p3768, module p3767-0005),
unless its carrier makes it another product, else by a whole string of `compatible`, else by words of `model`. For an
unknown board nothing is guessed: its rails are shown as rails without a total. This module imports neither numpy nor
an engine.
"""

from __future__ import annotations

import functools
import re
import sys
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

if sys.version_info >= (3, 11):
    import tomllib
else:
    import tomli as tomllib

SUM = "sum_of_rails"
"""In `Board.total`: the sum of the rails that no other rail feeds; also the scope of that sum."""
SCOPES = ("carrier", "module", "rail")
VERIFIED = ("real hardware", "recorded fixture", "public line", "public document")
"""How a fact was verified, best first. A public line was printed by such a board and published by its owner."""
_P_NUMBER = re.compile(r"(?<![0-9a-z])p?(\d{4})(?:-(\d{4}))?(?![0-9])")
"""A part of `compatible` (p3767-0005), or a name under the plug-in manager's ids (3448-0000-400)."""


@dataclass(frozen=True)
class Rail:
    """One supply that a power monitor measures."""

    label: str
    """The driver's name for it."""
    feeds: str
    scope: str = "rail"
    """carrier, module or rail."""
    below: str = ""
    """The rail that feeds this one, and so already contains it; a sum never adds both."""
    verified: str = ""


@dataclass(frozen=True)
class Board:
    """One family of modules."""

    key: str
    name: str
    soc: str
    compute: str
    """CUDA compute capability."""
    modules: Mapping[str, str]
    """P-number -> product name."""
    total: tuple[str, ...]
    """How a total is formed, best first: labels, or SUM."""
    rails: Mapping[str, Rail]
    verified: str
    doubts: tuple[str, ...]
    sources: tuple[str, ...]
    compatible: tuple[str, ...] = ()
    model: tuple[str, ...] = ()
    carriers: Mapping[str, str] = field(default_factory=dict)
    """P-number of a carrier -> product name, if the carrier makes the module another product."""

    def scope_of(self, label: str) -> str:
        """Return the scope of the rail with this label; `rail` if the board is not known to have it."""
        return self.rails[label].scope if label in self.rails else "rail"

    def terms(self) -> tuple[str, ...]:
        """Return the labels of a sum's terms: rails of scope `rail` that no other rail feeds."""
        return tuple(name for name, rail in self.rails.items() if rail.scope == "rail" and not rail.below)


@dataclass(frozen=True)
class Named:
    """The machine that a device tree names."""

    board: Board | None
    module: str = ""
    """P-number; '' if none is named."""
    product: str = ""
    how: str = ""
    """The text by which it was recognised."""


@dataclass(frozen=True)
class Metric:
    """One metric other than a rail: channel, scope, the boards that have it, and its source."""

    name: str
    scope: str
    on: str
    source: str
    verified: str


@dataclass(frozen=True)
class _Table:
    boards: Mapping[str, Board]
    jetpack: Mapping[str, str]
    series: Mapping[str, str]
    metrics: tuple[Metric, ...]


def boards() -> Mapping[str, Board]:
    """Return every board by its key."""
    return _table().boards


def metrics() -> tuple[Metric, ...]:
    """Return the metrics other than rails."""
    return _table().metrics


def jetpack(release: str) -> str:
    """Return the JetPack that the L4T release (`36.4.4`) belongs to, or '' if it is unknown or belongs to several."""
    return _table().jetpack.get(release, "")


def jetpack_series(release: str) -> str:
    """Return the major version of the JetPacks made from this L4T release, or '' if unknown."""
    return _table().series.get(release.partition(".")[0], "")


def recognise(compatible: Sequence[str], model: str = "", ids: Iterable[str] = ()) -> Named:
    """Return the board that a device tree names.

    `compatible` holds the strings of the root node, `ids` the names under chosen/plugin-manager/ids, where JetPack 4
    lists the boards it found by their EEPROM.
    """
    numbers = [n for text in (*ids, *compatible) for n in _p_numbers(text)]
    if kit := _of_carrier(numbers):
        return kit
    for exact in (True, False):
        for number in numbers:
            found = _of_module(number, exact=exact)
            if found:
                return found
    for text in compatible:
        for board in boards().values():
            if text in board.compatible:
                return Named(board, "", board.name, text)
    words = [(word, board) for board in boards().values() for word in board.model if word in model]
    if words:
        word, board = max(words, key=lambda found: len(found[0]))
        return Named(board, "", board.name, word)
    return Named(None, how=f"no board is known by {', '.join((*compatible, model)) or 'this device tree'}")


def _p_numbers(text: str) -> list[str]:
    """Return the P-numbers in a text; those of modules (after the +) come first."""
    carrier, plus, module = text.partition("+")
    parts = (module, carrier) if plus else (carrier,)
    return [f"p{a}-{b}" if b else f"p{a}" for part in parts for a, b in _P_NUMBER.findall(part)]


def _of_carrier(numbers: Sequence[str]) -> Named | None:
    """Return the product that a carrier makes of a module (a p3701-0008 on a p3740-0002 is an IGX Orin)."""
    hits = [(number, board) for number in numbers for board in boards().values() if number in board.carriers]
    if not hits:
        return None
    carrier, board = hits[0]
    known = {m for b in boards().values() for m in b.modules}
    return Named(board, next((n for n in numbers if n in known), ""), board.carriers[carrier], carrier)


def _of_module(number: str, *, exact: bool) -> Named | None:
    """Return the board of this P-number; if not `exact`, of its first half, unless two families share it (p3767).

    A product that only a carrier makes of a module (IGX Orin) is no family of that module.
    """
    hits = [
        board
        for board in boards().values()
        if (exact or not board.carriers)
        and any(m == number if exact else m.startswith(number[:5]) for m in board.modules)
    ]
    if len(hits) != 1:
        return None
    return Named(hits[0], number, hits[0].modules.get(number, hits[0].name), number)


@functools.cache
def _table() -> _Table:
    data = tomllib.loads((Path(__file__).parent / "boards.toml").read_text(encoding="utf-8"))
    known = {key: _board(key, entry) for key, entry in data["boards"].items()}
    metrics = tuple(Metric(**entry) for entry in data["metrics"])
    return _Table(known, data["jetpack"], data["jetpack_series"], metrics)


def _board(key: str, entry: dict[str, Any]) -> Board:
    rails = {
        label: Rail(label, verified=rail.pop("verified", entry["verified"]), **rail)
        for label, rail in entry.pop("rails").items()
    }
    lists = ("total", "doubts", "sources", "compatible", "model")
    fields: dict[str, Any] = {name: tuple(v) if name in lists else v for name, v in entry.items()}
    return Board(key, rails=rails, **fields)
