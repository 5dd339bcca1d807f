"""The Jetson modules that edgescope knows (boards.toml as types), and which of them this machine is, with its release.

A board is recognised by its module's P-number (`nvidia,p3768-0000+p3767-0005`: carrier p3768, module p3767-0005),
unless its carrier makes it another product, else by a whole string of `compatible`, else by words of `model`. For an
unknown board nothing is guessed: its rails are shown as rails without a total. This module imports neither numpy nor
an engine.

The module names the machine (stable); the release, from /etc/nv_tegra_release, changes with every update, so it is a
current fact. The serial number is not read here: the CPU's facts already tell two identical boards apart.
"""

from __future__ import annotations

import functools
import re
import sys
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from edgescope.devices.kernel_files import Fact, absent, fact, is_absent

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
    dla: int = 0
    """Cores of its deep learning accelerator, the fewest of its modules."""

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
class Software:
    """What some versions of JetPack install."""

    jetpack: tuple[str, ...]
    """The versions, oldest first: `6.1`, `6.2.1`."""
    python: str
    cuda: str
    tensorrt: str
    """As far as it is known: `8.2.1`, `10.13`."""
    boards: tuple[str, ...]
    """Keys of the boards that they run on."""
    verified: str
    sources: tuple[str, ...]


@dataclass(frozen=True)
class _Table:
    boards: Mapping[str, Board]
    jetpack: Mapping[str, str]
    series: Mapping[str, str]
    metrics: tuple[Metric, ...]
    software: tuple[Software, ...]


def boards() -> Mapping[str, Board]:
    """Return every board by its key."""
    return _table().boards


def metrics() -> tuple[Metric, ...]:
    """Return the metrics other than rails."""
    return _table().metrics


def software(board: str = "") -> tuple[Software, ...]:
    """Return what every JetPack from 4.6 on installs, oldest first; with a board's key, those that run on it."""
    return tuple(s for s in _table().software if not board or board in s.boards)


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
    software = tuple(map(_software, data["software"]))
    return _Table(known, data["jetpack"], data["jetpack_series"], metrics, software)


def _board(key: str, entry: dict[str, Any]) -> Board:
    rails = {
        label: Rail(label, verified=rail.pop("verified", entry["verified"]), **rail)
        for label, rail in entry.pop("rails").items()
    }
    lists = ("total", "doubts", "sources", "compatible", "model")
    fields: dict[str, Any] = {name: tuple(v) if name in lists else v for name, v in entry.items()}
    return Board(key, rails=rails, **fields)


def _software(entry: dict[str, Any]) -> Software:
    fields: dict[str, Any] = {name: tuple(v) if isinstance(v, list) else v for name, v in entry.items()}
    return Software(**fields)


TREE = "proc/device-tree"
RELEASE = "etc/nv_tegra_release"
_IN_A_CONTAINER = "in a container: -v /sys:/sys:ro"
_LINE = re.compile(r"#\s*R(\d+)\s*\(release\),\s*REVISION:\s*(\d+(?:\.\d+)*)", re.IGNORECASE)
"""`# R36 (release), REVISION: 4.4, GCID: ..., BOARD: generic, EABI: aarch64, DATE: ...`, from R21 to R39."""


def present(root: Path) -> str:
    """Return '' on a machine whose device tree or release file names an NVIDIA Tegra, otherwise the reason."""
    tree = compatible(root)
    if any(name.startswith("nvidia,tegra") for name in tree):
        return ""
    if tree:
        return f"not a Jetson: the device tree names {', '.join(tree)}"
    if not is_absent(l4t(root)):
        return ""
    return f"not a Jetson: neither {root / TREE / 'compatible'} nor {root / RELEASE} ({_IN_A_CONTAINER})"


def stable(root: Path) -> dict[str, Any]:
    """Return the facts that name the board; for an unknown board, the reasons in their place."""
    named = here(root)
    if named.board is None:
        reason = absent(f"{named.how}: add it to boards.toml (edgescope docs boards)")
        return {"board": reason, "module": reason, "soc": soc(root), "compute_capability": reason}
    module = named.module or absent(f"recognised by {named.how}; no P-number of a module is named")
    return {
        "board": named.board.name,
        "product": named.product,
        "module": module,
        "soc": soc(root),
        "compute_capability": named.board.compute,
    }


def here(root: Path) -> Named:
    """Return the board that the device tree names."""
    ids = [path.name for path in sorted((root / TREE / "chosen/plugin-manager/ids").glob("[0-9]*-*"))]
    model = fact(root / TREE / "model", _words)
    return recognise(compatible(root), "" if is_absent(model) else model, ids)


def compatible(root: Path) -> list[str]:
    """Return the strings of the root node, most specific first, or [] if there is no device tree."""
    found = fact(root / TREE / "compatible", lambda text: [part.strip() for part in text.split("\0")])
    return [] if is_absent(found) else [part for part in found if part]


def soc(root: Path) -> Fact:
    """Return the SoC from the device tree: tegra210, 186, 194, 234, 264."""
    names = [name.partition(",")[2] for name in compatible(root) if name.startswith("nvidia,tegra")]
    return names[0] if names else absent(f"no nvidia,tegra... in {root / TREE / 'compatible'}")


def l4t(root: Path) -> Fact:
    """Return the L4T release, e.g. `36.4.4`, from /etc/nv_tegra_release."""

    def release(text: str) -> str:
        found = _LINE.search(text)
        if not found:
            raise ValueError(f"no release in {text[:60]!r}")
        numbers = [int(found[1]), *map(int, found[2].split("."))]
        return ".".join(map(str, [*numbers, 0, 0][: max(3, len(numbers))]))

    return fact(root / RELEASE, release)


def jetpack_here(root: Path) -> Fact:
    """Return the JetPack that this L4T release belongs to, if there is exactly one."""
    release = l4t(root)
    if is_absent(release):
        return release
    series = jetpack_series(release)
    of = f"of JetPack {series}, in no single {series}.x" if series else "in no JetPack"
    return jetpack(release) or absent(f"L4T {release} is {of} that is known")


def _words(text: str) -> str:
    return text.strip("\0 \n")
