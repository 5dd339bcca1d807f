"""Turns the agent's rows into Readings, with each rail's scope and the board's total as boards.toml defines them.

The times stay on the board's clock: it also stamped trtexec's lines, so nothing has to be shifted.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from edgescope.records import Channel, Json, Readings

#: The channel of the agent's CPU time; telemetry.watcher uses the same name for its own.
COST_CHANNEL = "sampler_cpu_s"


class Rows:
    """Collects the rows of one sampling; afterwards it gives the readings and the cost of sampling."""

    def __init__(self, channels: Sequence[Mapping[str, Json]], hz: float) -> None:
        self.channels, self.hz = [_channel(c) for c in channels], hz
        self.rows: list[tuple[int, float, list[float | None]]] = []
        self.stopped: Mapping[str, Json] | None = None
        """The agent's answer when it stopped sampling; None if it never stopped."""

    def take(self, event: Mapping[str, Json]) -> None:
        """Take one event; leave incomplete rows out."""
        for row in event.get("rows", ()):
            if isinstance(row, list) and len(row) == 3 and len(row[2]) == len(self.channels):
                self.rows.append((round(float(row[0]) * 1e9), float(row[1]), row[2]))

    def readings(self, facts: Mapping[str, Any]) -> Readings:
        """Return every value that was read; `rails` and `power_total` of the Jetson's `facts` give the scopes."""
        channels = [_scoped(c, facts) for c in self.channels]
        columns = [[row[2][i] for row in self.rows] for i in range(len(channels))]
        if (total := _total(channels, columns, facts)) is not None:
            channels.append(total[0])
            columns.append(total[1])
        channels.append(Channel(COST_CHANNEL, "s", "process", "counter", "the agent's process_time"))
        columns.append([row[1] for row in self.rows])
        reasons = dict((self.stopped or {}).get("reasons", {}))
        judged = [_judged(c, column, reasons) for c, column in zip(channels, columns, strict=True)]
        times = [row[0] for row in self.rows]
        flat = [
            (t, i, v)
            for i, column in enumerate(columns)
            for t, v in zip(times, column, strict=True)
            if v is not None
        ]
        flat.sort(key=lambda row: row[0])
        return Readings(
            tuple(judged),
            np.array([row[0] for row in flat], np.int64),
            np.array([row[1] for row in flat], np.int16),
            np.array([row[2] for row in flat], np.float64),
        )

    def cost(self) -> dict[str, Json]:
        """Return the cost of sampling, in the same form as a local sampler's."""
        ticks = len(self.rows)
        wall_s = (self.rows[-1][0] - self.rows[0][0]) / 1e9 if ticks > 1 else 0.0
        cpu_s = self.rows[-1][1] - self.rows[0][1] if ticks > 1 else 0.0
        alive = self.stopped is not None
        return {
            "hz": self.hz,
            "ticks": ticks,
            "missed_ticks": max(0, int(wall_s * self.hz) - ticks + 1),
            "achieved_hz": (ticks - 1) / wall_s if wall_s else None,
            "cpu_s": cpu_s,
            "wall_s": wall_s,
            "cpu_share": cpu_s / wall_s if wall_s else None,
            "alive": alive,
            "end": "stopped" if alive else "died: the agent did not report that it had stopped",
            "slowed": {},
            "lost_rows": 0,
            "write_error": "",
        }


def _channel(about: Mapping[str, Json]) -> Channel:
    return Channel(*(str(about.get(key, "")) for key in ("name", "unit", "scope", "kind", "source")))


def _scoped(channel: Channel, facts: Mapping[str, Any]) -> Channel:
    """Return a rail's channel with the scope that boards.toml gives its label on this board."""
    for suffix in ("_power_w", "_voltage_v", "_current_a"):
        known = _mapping(facts.get("rails")).get(channel.name.removesuffix(suffix))
        if channel.name.endswith(suffix) and isinstance(known, Mapping) and known.get("scope"):
            return replace(channel, scope=str(known["scope"]))
    return channel


def _total(
    channels: Sequence[Channel], columns: Sequence[list[float | None]], facts: Mapping[str, Any]
) -> tuple[Channel, list[float | None]] | None:
    """Return the board's total as a sum of rails, if boards.toml defines it so; an unread term leaves a gap."""
    total = _mapping(facts.get("power_total"))
    known = _mapping(facts.get("rails"))
    terms = [n for n, rail in known.items() if _mapping(rail).get("label") in total.get("of", ())]
    index = {c.name: i for i, c in enumerate(channels)}
    mine = [index.get(f"{name}_power_w", -1) for name in terms]
    if not terms or len(terms) != len(total.get("of", ())) or -1 in mine:
        return None
    rows = zip(*(columns[i] for i in mine), strict=True)
    sums = [None if None in row else float(sum(v for v in row if v is not None)) for row in rows]
    kind = "average" if any(channels[i].kind == "average" for i in mine) else "gauge"
    source = f"sum of {' + '.join(total['of'])}"
    return Channel(str(total["channel"]), "W", str(total["scope"]), kind, source), sums


def _judged(channel: Channel, column: Sequence[float | None], reasons: Mapping[str, str]) -> Channel:
    if any(value is not None for value in column):
        return channel
    why = reasons.get(channel.name, "the agent sent no value") if column else "the agent sent no row"
    return replace(channel, status="unsupported", reason=str(why))


def _mapping(value: object) -> Mapping[str, Any]:
    return value if isinstance(value, Mapping) else {}
