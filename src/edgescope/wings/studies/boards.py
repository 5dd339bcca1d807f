"""Boards beside each other: what each did of a study's work under the study's own definitions, and claims about them.

A study says with `entry` what one machine did of each piece of its work: the rate, latency, memory, watts, joules, and
figures of its own. A claim with `boards` in paper.toml is about machines, and is judged by whatever the store holds:

    { of = "Nano", figure = "throughput_sps", most = 30 }                           a board's own figure
    { of = "Orin Nano", than = ["AGX Xavier"], figure = "throughput_sps", least = 1.15 }   its figure over another's
    { of = "Xavier NX", figure = "epoch_j", than = [], most = 1 }                   over that of every other board

Such a ratio joins two independent figures. It is no judgement of the machines: nothing cancels a machine's mood.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import TypeVar

from edgescope.analysis.cells import machines
from edgescope.analysis.cells.concurrency import times
from edgescope.analysis.cells.devices import Terms, meters_differ
from edgescope.analysis.cells.replicates import above, across, of_fields, percentiles
from edgescope.analysis.cells.row import Row
from edgescope.analysis.run.energy import usual
from edgescope.errors import UsageError
from edgescope.metrics import scoped
from edgescope.records import Absent, Field, Machine, Measured, Result
from edgescope.registry import REPLAYED
from edgescope.units import show
from edgescope.wings.studies import claim
from edgescope.wings.studies.claim import Answered, Found, Voice, heard, unknown
from edgescope.wings.studies.paper import Paper, Stated

T = TypeVar("T")
RATE, LATENCY, MEMORY = "throughput_sps", "latency_p50_s", "memory_bytes"
POWER, ENERGY = "power_w", "energy_per_sample_j"
UNIFIED = "unified_memory_bytes"
LEAST_ID = 4
"""Characters of an id that can name a machine."""
VENDOR = re.compile(r"\b(NVIDIA|Jetson)\b ?|\(.*\)", re.IGNORECASE)
"""What a board's name has in some places and lacks in others."""


@dataclass(frozen=True)
class Entry:
    """What one machine did of one piece of a study's work."""

    work: str
    """The same words on every machine."""
    how: str
    """Engine, precision and whatever else each machine may choose for itself."""
    figures: Mapping[str, Field]
    runs: tuple[Result, ...] = field(default=(), repr=False)

    def __getitem__(self, name: str) -> Field:
        """Return one figure, or why there is none."""
        return self.figures.get(name, Absent("not measured"))

    @property
    def scope(self) -> str:
        """Return what the power meter covers; '' if there is none."""
        return usual(self.runs)

    @property
    def row(self) -> Row:
        """Return its first run as a row of evidence."""
        first = self.runs[0]
        return Row(trial=first.trial, status=first.status, verdict=first.verdict, metrics=first.metrics)


def entry(work: str, how: str, runs: Sequence[Result], more: Mapping[str, Field] | None = None) -> Entry:
    """Return what these runs of one cell give; `more` are the study's own figures, or replace the usual ones."""
    usual_ones = {name: across(runs, name) for name in (RATE, POWER, ENERGY)}
    timed = {LATENCY: percentiles(runs)["p50_s"], MEMORY: memory(runs)}
    return Entry(work, how, {**usual_ones, **timed, **(more or {})}, tuple(runs))


def memory(runs: Sequence[Result]) -> Field:
    """Return the memory in bytes that runs of one cell took: of all, where CPU and GPU share it, else of the host.

    On a Jetson a process's resident memory lacks what CUDA took, so work on its GPU has no other figure than all.
    """
    one = [r for r in runs if UNIFIED in r.metrics or "jetson" in r.machine.stable]
    if runs and (runs[0].trial.place.is_host or not one):
        name = "processes_pss_bytes" if runs[0].trial.multi_process else "peak_rss_bytes"
        return across(runs, name)
    found = across(runs, UNIFIED)
    if isinstance(found, Measured):
        return found
    return Absent(f"what CPU and GPU took of their memory was not measured ({found.reason})")


@dataclass(frozen=True)
class Board:
    """One machine with what it did."""

    machine: Machine | None
    entries: tuple[Entry, ...] = ()
    price: float | None = None
    apart: bool = False
    """Whether another one here has the same name."""

    @property
    def name(self) -> str:
        """Return `Orin Nano`, with the beginning of its id if two have the name."""
        found = model(self.machine)
        return f"{found} {self.id[:4]}" if self.apart else found

    @property
    def id(self) -> str:
        """Return the machine's id."""
        return self.machine.id if self.machine else ""

    def is_a(self, name: str) -> bool:
        """Return whether a paper's or a user's name of a board means this one."""
        asked, own = _bare(name), _bare(model(self.machine))
        jetson = self.machine is not None and "jetson" in self.machine.stable
        return asked == own or (not jetson and asked in own.split())

    def named(self, word: str) -> bool:
        """Return whether a user's word means this one: its name, its address, or the beginning of its id."""
        agent = self.machine.state.get("agent") if self.machine else None
        address = agent.get("address") if isinstance(agent, Mapping) else None
        begins = len(word) >= LEAST_ID and self.id.startswith(word)
        return begins or word in (address, self.name) or self.is_a(word)


def model(machine: Machine | None) -> str:
    """Return a machine's name as papers write it: `Orin Nano`, `AGX Xavier`, `A40`, or that of its processor."""
    if machine is None:
        return "an unknown machine"
    jetson = machine.stable.get("jetson")
    known = jetson.get("board") if isinstance(jetson, Mapping) else None
    own = (
        isinstance(known, str) and REPLAYED not in machine.state
    )  # the times of a replay are another machine's
    found = str(known) if own else machines.called(machine)
    return VENDOR.sub("", found).strip() or found


def _bare(name: str) -> str:
    return VENDOR.sub("", name.replace("_", " ")).strip().casefold()


def alone(results: Iterable[Result], entries: Sequence[Entry]) -> Board:
    """Return the one machine of these results."""
    return Board(next((r.machine for r in results if machines.known(r)), None), tuple(entries))


def priced(boards: Sequence[Board], prices: Mapping[str, float]) -> list[Board]:
    """Return the boards with their prices, by name, address or the beginning of an id; UsageError for another name."""
    Terms(prices)  # each must be a price
    for name in prices:
        if not any(board.named(name) for board in boards):
            raise UsageError(
                "E-PAPER-5",
                f"--price {name}=... names no board of this page",
                evidence=f"boards: {', '.join(f'{b.name} ({b.id[:8]})' for b in boards)}",
                fix=f"--price '{boards[0].name}=249'",
            )
    found = ((b, next((p for n, p in prices.items() if b.named(n)), None)) for b in boards)
    return [replace(board, price=price) for board, price in found]


# -- claims ---------------------------------------------------------------------------------------------------


def answered(paper: Paper, table: T, board: Board, nothing: str = "") -> tuple[Answered, ...]:
    """Return every claim of a paper with one machine's answer; `nothing` is the reason if none can be answered."""
    return claim.answered(paper, table, nothing, lambda stated: between(paper, stated, [board]))


def between(paper: Paper, stated: Stated, boards: Sequence[Board]) -> Found:
    """Return the answer to a claim about machines that these machines give."""
    rule = stated.boards
    mine = [b for b in boards if b.is_a(rule["of"])]
    others = [b for b in boards if b not in mine and _other(b, rule)]
    if not mine or ("than" in rule and not others):
        return unknown(_lacking(paper, rule, boards))
    limit, rises = (rule["least"], True) if "least" in rule else (rule["most"], False)
    pairs = _ratios(mine, others, rule["figure"]) if "than" in rule else _own(mine, rule["figure"])
    voices, absent = [], []
    for words, ratio, entries in pairs:
        if isinstance(ratio, Absent):
            absent.append(ratio.reason)
            continue
        side = above(ratio, limit, exact=rule["figure"] == MEMORY)
        holds = side if rises or side is None else not side
        voices.append(Voice(holds, words, [e.row for e in entries], ratio.value))
    missing = next(iter(absent), "no work was measured on both" if others else "it measured nothing of it")
    bound = f"{'at least' if rises else 'at most'} {limit:g}"
    ratio_words = f"{rule['of']} over the other, {bound} is claimed" if "than" in rule else ""
    return heard(voices, "works", missing, ratio_words)


def _other(board: Board, rule: Mapping[str, object]) -> bool:
    named = rule.get("than")
    return isinstance(named, list) and (not named or any(board.is_a(name) for name in named))


def _own(mine: Sequence[Board], figure: str) -> Iterator[tuple[str, Field, list[Entry]]]:
    for board in mine:
        for e in board.entries:
            yield f"{_words(mine, e)}{board.name} {show(e[figure])} ({e.how})", e[figure], [e]


def _words(boards: Sequence[Board], e: Entry) -> str:
    """Return the work of an entry, if these boards did several."""
    return f"{e.work}: " if len({each.work for b in boards for each in b.entries}) > 1 else ""


def _ratios(
    mine: Sequence[Board], others: Sequence[Board], figure: str
) -> Iterator[tuple[str, Field, list[Entry]]]:
    for a in mine:
        for b in others:
            for x in a.entries:
                for y in (e for e in b.entries if e.work == x.work):
                    ratio = over(x, y, figure)
                    sides = f"{a.name} {show(x[figure])} ({x.how}), {b.name} {show(y[figure])} ({y.how})"
                    said = times(ratio) if isinstance(ratio, Measured) else "n/a"
                    yield f"{_words([a, b], x)}{sides}: {said}", ratio, [x, y]


def over(x: Entry, y: Entry, figure: str) -> Field:
    """Return one machine's figure over another's; Absent for watts and joules of meters that cover different things."""
    watts = scoped(figure) or figure.endswith("_j")
    if watts and (why := meters_differ(x.runs, y.runs)) is not None:
        return why
    found = of_fields(x[figure], y[figure])
    return replace(found, unit="ratio") if isinstance(found, Measured) else found


def _lacking(paper: Paper, rule: Mapping[str, object], boards: Sequence[Board]) -> str:
    """Return which boards a claim needs, which there are, and the command that measures them."""
    named = rule.get("than")
    others = named if isinstance(named, list) else []
    needs = [str(rule["of"]), *map(str, others), *(["another board"] if named == [] else [])]
    here = ", ".join(b.name for b in boards if b.machine) or "no machine"
    lacks = f"it needs {' and '.join(needs)}; here: {here}"
    return f"{lacks}. Try: {paper.measure} --device cuda --on ssh://BOARD1 --on ssh://BOARD2"
