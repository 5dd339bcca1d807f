"""The answer on a terminal: the options side by side, the pick, what would change it, a map of networks."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from edgescope.analysis.offload.model import Option
from edgescope.analysis.offload.network import Profile
from edgescope.analysis.offload.question import Question
from edgescope.records import Field
from edgescope.report import offload_words as words
from edgescope.report import terminal

LEVELS = 9
"""Rows of the map."""
WIDE = 4
"""Characters of one round trip in the map."""
BETTER, WILL_DO, WILL_NOT, HERE = "█", "░", "·", "◆"


@dataclass(frozen=True)
class Page:
    """A question with the command that asked it."""

    question: Question
    command: str


def show(page: Page) -> None:
    """Print everything."""
    found = page.question
    edge, cloud = found.model.local, found.model.remote
    terminal.note(
        f"edge   {edge.row.trial.model} {edge.row.label} on {edge.machine}, {edge.service.n:,} queries"
    )
    terminal.note(
        f"cloud  {cloud.row.trial.model} {cloud.row.label} on {cloud.machine}, {cloud.service.n:,} queries"
    )
    terminal.note(f"network {words.network(found.network)}")
    print()
    head = ("answered", "p50", "p99", "samples/s", "energy/sample", "busiest", "from", "")
    terminal.table(head, [_row(found, o) for o in found.answer.options])
    for line in _broken(found):
        terminal.note(line)
    print(f"answer: {words.pick(found)}")
    print(f"why: {found.answer.reason}")
    for line in words.flips(found):
        print(line)
    print()
    _map(found)
    for line in words.borders(found):
        print(line)
    for note in [*words.absences(found), *found.notes]:
        terminal.note(note)


def _row(found: Question, option: Option) -> list[str]:
    f = option.figures
    most = max(option.busy, key=lambda b: b[1], default=None)
    busy = f"{most[0]} {most[1]:.0%}" if most else ""
    state = "answer" if option is found.answer.pick else "" if option.fits else "no"
    shown = [
        _brief(field) for field in (f["p50_s"], f["p99_s"], f["throughput_sps"], f["energy_per_sample_j"])
    ]
    return [option.words, *shown, busy, "modelled" if option.modelled else "measured", state]


def _brief(field: Field) -> str:
    """Return the value with its interval; samples/s without the unit, which the heading has."""
    return terminal.show(field).replace(" samples/s", "")


def _broken(found: Question) -> list[str]:
    return [f"{option.words}: {text}" for option in found.answer.options for text in option.broken]


def _map(found: Question) -> None:
    """Print which answer holds over round trip (across) and bandwidth (up)."""
    points = found.curve.points
    ends = [b for p in points for b in (p.equal_bps, p.fits_bps) if b]
    here = found.network.up_bps
    low, high = math.log10(min([here, *ends]) / 2), math.log10(max([here, *ends]) * 2)
    column = min(
        range(len(points)), key=lambda i: abs(math.log(points[i].rtt_s / max(found.network.rtt_s, 1e-6)))
    )
    levels = [low + (high - low) * i / (LEVELS - 1) for i in range(LEVELS)][::-1]
    row = min(range(LEVELS), key=lambda i: abs(levels[i] - math.log10(here)))
    for i, level in enumerate(levels):
        cells = "".join(_cell(found, p.equal_bps, p.fits_bps, 10**level) * WIDE for p in points)
        if i == row:
            cells = cells[: column * WIDE + 1] + HERE + cells[column * WIDE + 2 :]
        print(f"{words.rate(10**level):>12} {cells}")
    labels = "".join(f"{words.time(p.rtt_s):<{2 * WIDE}}" for p in points[::2])
    print(f"{'up / RTT':>12} {labels}")
    limits = " and ".join(c.text for c in found.model.wanted.constraints)
    legend = f"{BETTER} cloud's {found.curve.quantity} at or below the edge's  {WILL_DO} cloud slower"
    print(f"{'':12} {legend}{f', yet keeps {limits}' if limits else ''}  ", end="")
    print(
        f"{f'{WILL_NOT} cloud will not do  ' if limits or found.model.request.rate else ''}{HERE} this network"
    )


def _cell(found: Question, equal: float | None, fits: float | None, bps: float) -> str:
    if fits is None or bps < fits:
        return WILL_NOT
    return BETTER if equal is not None and bps >= equal else WILL_DO


def network(profile: Profile, keys: Mapping[str, Any]) -> None:
    """Print what a probe measured."""
    terminal.note(profile.source)
    rows = [
        ("round trip", *words.spread(profile.rtt_samples_s, words.time), str(len(profile.rtt_samples_s))),
        ("up", *words.spread(profile.up_samples_bps, words.rate), str(len(profile.up_samples_bps))),
        ("down", *words.spread(profile.down_samples_bps, words.rate), str(len(profile.down_samples_bps))),
    ]
    terminal.table(("", "median", "p99 or least", "range", "samples"), rows)
    terminal.note(f"loss: n/a ({profile.loss_absent}); {'; '.join(keys['evidence'])}")
