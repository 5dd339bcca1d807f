"""Which Jetson this is and which release it runs, from the device tree and /etc/nv_tegra_release.

The module names the machine (stable); the release changes with every update, so it is a current fact. The
serial number is not read here: the CPU's facts already tell two identical boards apart.
"""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

from edgescope.devices.kernel_files import Fact, absent, fact, is_absent
from edgescope.wings.jetson import boards
from edgescope.wings.jetson.boards import Named

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
    named = recognise(root)
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


def recognise(root: Path) -> Named:
    """Return the board that the device tree names."""
    ids = [path.name for path in sorted((root / TREE / "chosen/plugin-manager/ids").glob("[0-9]*-*"))]
    model = fact(root / TREE / "model", _words)
    return boards.recognise(compatible(root), "" if is_absent(model) else model, ids)


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


def jetpack(root: Path) -> Fact:
    """Return the JetPack that this L4T release belongs to, if there is exactly one."""
    release = l4t(root)
    if is_absent(release):
        return release
    series = boards.jetpack_series(release)
    of = f"of JetPack {series}, in no single {series}.x" if series else "in no JetPack"
    return boards.jetpack(release) or absent(f"L4T {release} is {of} that is known")


def _words(text: str) -> str:
    return text.strip("\0 \n")
