"""What the board is, and its power rails: against the table, each other, and tegrastats."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from edgescope.devices.kernel_files import is_absent
from edgescope.devices.manifest import title
from edgescope.records import Json, Readings
from edgescope.wings.jetson.lends import Board, boards, parse
from edgescope.wings.record.lends import of_nobody
from edgescope.wings.verify_board.check import Outcome, judged, unsupported
from edgescope.wings.verify_board.site import Said, Site, mapping, watched

RAILS_S = 6.0
"""Seconds of sampling: an INA3221 shows a new value every 0.43 s."""
TEGRASTATS_MS = 500
NEAR = 0.05
"""Share by which two readings of one rail over the same seconds may differ: they average other samples of a chip."""
NEAR_W = 0.15
"""Watts that they may differ by in any case: two steps of an Orin's 2 mOhm shunt are 0.1 W at 5 V."""
PARTS = 1.02
"""Times the total that the rails which it feeds may add up to."""


def board(site: Site) -> Outcome:
    """Look whether the board is in the table of boards and names its release and JetPack."""
    machine = site.machine()
    stable, state = mapping(machine.stable), mapping(machine.state)
    mine, now = mapping(stable.get("jetson")), mapping(state.get("jetson"))
    bare = of_nobody(machine)
    evidence: dict[str, Json] = {"stable": dict(bare.stable), "state": dict(bare.state)}
    evidence["title"] = title(
        {name: (mapping(stable.get(name)), mapping(state.get(name))) for name in {**stable, **state}}
    )
    if not mine:
        return unsupported(_no_jetson(site), evidence)
    said = {"board": mine.get("board"), "l4t": now.get("l4t"), "jetpack": now.get("jetpack")}
    wrong = [f"{name}: {mapping(v)['absent']}" for name, v in said.items() if is_absent(v)]
    module = "no module named" if is_absent(mine.get("module")) else f"module {mine.get('module')}"
    right = f"{mine.get('product')}, {module}, L4T {now.get('l4t')}, JetPack {now.get('jetpack')}"
    return judged(wrong, right, evidence)


def rails(site: Site) -> Outcome:
    """Look whether every rail of boards.toml is there, and no other, and whether each can be read."""
    known, found = _known(site), _rails(site)
    if not found:
        return unsupported(_no_rails(site))
    readings = watched(site, RAILS_S).readings
    evidence = {name: _series(readings, f"{name}_power_w") for name in found}
    wrong = [f"{name}: {f['absent']}" for name, f in evidence.items() if "absent" in f]
    wrong += [f"{found[name]['label']} is not in boards.toml for this board" for name in found if known is None
              or found[name]["label"] not in known.rails]  # fmt: skip
    labels = {str(rail["label"]) for rail in found.values()}
    wrong += [f"no monitor shows {label}" for label in _needed(known, labels)]
    total = mapping(mapping(site.machine().state.get("jetson")).get("power_total"))
    if "absent" in total:
        wrong.append(str(total["absent"]))
    watts = _mean(readings, str(total.get("channel", "")))
    right = f"{len(found)} rails, {total.get('channel')} {watts:.2f} W" if watts is not None else ""
    if watts is not None and not 0.2 <= watts <= 200.0:
        wrong.append(f"a total of {watts:.2f} W is not what such a board takes")
    return judged(wrong, right, {"rails": evidence, "total_w": watts})


def rails_sum(site: Site) -> Outcome:
    """Compare each rail with the sum of the rails that it feeds."""
    known, found = _known(site), _rails(site)
    if known is None or not found:
        return unsupported(_no_rails(site))
    readings = watched(site, RAILS_S).readings
    watts = {str(rail["label"]): _mean(readings, f"{name}_power_w") for name, rail in found.items()}
    parts: dict[str, float] = {}
    for label, rail in known.rails.items():
        if rail.below and (w := watts.get(label)) is not None:
            parts[rail.below] = parts.get(rail.below, 0.0) + w
    compared = {whole: (parts[whole], w) for whole in parts if (w := watts.get(whole)) is not None}
    if not compared:
        return unsupported("no rail of this board feeds another that is measured")
    wrong = [
        f"the rails below {whole} add up to {part:.2f} W, {whole} reads {w:.2f} W"
        for whole, (part, w) in compared.items()
        if part > w * PARTS + NEAR_W
    ]
    words = [f"{part:.2f} W of the {w:.2f} W of {whole}" for whole, (part, w) in compared.items()]
    evidence = {whole: {"parts_w": part, "whole_w": w} for whole, (part, w) in compared.items()}
    return judged(wrong, f"the rails below it take {', '.join(words)}", evidence)


def rails_tegrastats(site: Site) -> Outcome:
    """Compare the mean of each rail over the same seconds, in sysfs and in tegrastats."""
    found = _rails(site)
    if not found:
        return unsupported(_no_rails(site))
    if not (program := site.find("tegrastats")):
        return unsupported("there is no tegrastats on PATH")
    said: list[Said] = []
    watch = site.watch()
    with watch.watching():
        said.append(
            site.run(["timeout", f"{RAILS_S:g}", program, "--interval", f"{TEGRASTATS_MS}"], RAILS_S + 10)
        )
    lines = [(t_ns, parse(text)) for t_ns, text in said[0].lines]
    theirs: dict[str, list[float]] = {}
    for _, line in lines:
        for item in (f for f in line.fields if f.unit == "W" and isinstance(f.value, float)):
            theirs.setdefault(item.label, []).append(float(item.value))  # type: ignore[arg-type]
    if not theirs:
        return judged([f"tegrastats printed no rail: {said[0].last or 'nothing'}"], "", {"lines": len(lines)})
    return _beside(theirs, {str(r["label"]): _mean(watch.readings, f"{n}_power_w") for n, r in found.items()})


def _beside(theirs: Mapping[str, list[float]], ours: Mapping[str, float | None]) -> Outcome:
    """Compare the mean of each rail by its label: tegrastats' and sysfs'."""
    evidence: dict[str, Json] = {}
    wrong = []
    for label, values in theirs.items():
        mine, mean = ours.get(label), float(np.mean(values))
        evidence[label] = {"tegrastats_w": mean, "lines": len(values), "sysfs_w": mine}
        if mine is None:
            wrong.append(f"tegrastats shows {label}, sysfs does not")
        elif abs(mine - mean) > max(NEAR * mean, NEAR_W):
            wrong.append(f"{label}: {mine:.2f} W in sysfs, {mean:.2f} W in tegrastats")
    wrong += [f"sysfs shows {label}, tegrastats does not" for label in ours if label not in theirs]
    near = max(
        (abs((ours[k] or 0) - float(np.mean(v))) for k, v in theirs.items() if ours.get(k)), default=0.0
    )
    return judged(wrong, f"{len(theirs)} rails within {near:.2f} W of each other", evidence)


def _rails(site: Site) -> Mapping[str, Mapping[str, Any]]:
    """Return the rails that the board shows, by the start of their channels' names; {} for none."""
    found = mapping(mapping(site.machine().state.get("jetson")).get("rails"))
    return {} if is_absent(found) else {name: mapping(rail) for name, rail in found.items()}


def _known(site: Site) -> Board | None:
    """Return what boards.toml says of this board, or None."""
    name = mapping(site.machine().stable.get("jetson")).get("board")
    return next((one for one in boards().values() if one.name == name), None)


def _needed(known: Board | None, labels: set[str]) -> list[str]:
    """Return the labels of the best total that no monitor shows."""
    if known is None or not known.total:
        return []
    best = known.total[0]
    return [label for label in (known.terms() if best not in known.rails else (best,)) if label not in labels]


def _no_jetson(site: Site) -> str:
    device = site.devices.get("jetson")
    return (device.present() if device else "") or "the board names no module"


def _no_rails(site: Site) -> str:
    return _no_jetson(site) if not site.machine().stable.get("jetson") else "no power monitor in sysfs"


def _mean(readings: Readings, name: str) -> float | None:
    values = readings.series(name)[1]
    return float(np.mean(values)) if len(values) else None


def _series(readings: Readings, name: str) -> dict[str, Json]:
    """Return how often a channel was read and moved, and its lowest, mean and highest value."""
    t_ns, values = readings.series(name)
    if not len(values):
        channel = next((c for c in readings.channels if c.name == name), None)
        return {"absent": channel.reason if channel else "not among the channels"}
    moves = int(np.count_nonzero(np.diff(values)))
    seconds = float(t_ns[-1] - t_ns[0]) / 1e9
    return {
        "readings": len(values), "seconds": round(seconds, 2), "moves": moves, "min_w": float(values.min()),
        "mean_w": float(values.mean()), "max_w": float(values.max()),
    }  # fmt: skip
