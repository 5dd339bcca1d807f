"""Select the results of one machine: numbers of two machines never meet in one figure.

A store may hold results of several machines: folders of another one that were copied into it, a board over ssh, a
recording that was replayed. Whoever reads it gets this machine's share unless another is named, and is told in one line
what was left out: a cell that another, faster machine ran would win otherwise.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from edgescope.errors import Message, UsageError
from edgescope.records import Json, Machine, Result
from edgescope.registry import REPLAYED

HERE, ALL = "here", "all"
"""Values of --machine besides the beginning of an id."""
NAMED_BY = ("model", "gpu", "name", "cpu", "board")
"""Stable facts that name a machine in words, the most telling first."""


def known(result: Result) -> bool:
    """Whether the machine was described: a process that died at once leaves no description."""
    return set(result.machine.stable) != {"absent"}


def name(machine: Machine) -> str:
    """Return `3f2a91bc (NVIDIA H100)`: the beginning of the id and the machine's description."""
    name = _words(machine)
    return f"{machine.id[:8]}{f' ({name})' if name else ''}"


def called(machine: Machine) -> str:
    """Return a short description of the machine, or its id if no fact describes it."""
    return _words(machine) or f"machine {machine.id[:8]}"


def _words(machine: Machine) -> str:
    """Return the GPU, processor or board (the first that is known), or `a recording of BOARD`; '' if nothing is known.

    The sensors of a recording are the board's; the timed work ran on the machine that replayed it.
    """
    played = machine.state.get(REPLAYED)
    if isinstance(played, Mapping):
        return f"a recording of {played.get('board', 'a board')}"
    gpus = machine.stable.get("nvidia", {})
    listed = gpus.get("gpus") if isinstance(gpus, Mapping) else None
    if isinstance(listed, list) and listed and isinstance(listed[0].get("name"), str):
        return str(listed[0]["name"])
    facts = flat(machine.stable)
    named = (v for w in NAMED_BY for k, v in facts.items() if k.split(".")[-1] == w)
    return next((value for value in named if isinstance(value, str) and value), "")


def flat(facts: Mapping[str, Json], prefix: str = "") -> dict[str, Json]:
    """Return nested facts as one mapping, keys joined by dots; {"absent": reason} stays whole."""
    out: dict[str, Json] = {}
    for key, value in facts.items():
        if isinstance(value, Mapping) and value and set(value) != {"absent"}:
            out.update(flat(value, f"{prefix}{key}."))
        else:
            out[f"{prefix}{key}"] = value
    return out


@dataclass(frozen=True)
class Share:
    """The results that one machine has in a store."""

    results: list[Result]
    note: Message | None = None
    """Whose they are if not this machine's, or how many of other machines were left out."""


def share(
    results: Iterable[Result],
    here: Machine,
    chosen: str = "",
    flag: str = "--machine",
    *,
    apart: bool = False,
) -> Share:
    """Return this machine's results, or those of `chosen`: the beginning of an id, a board, `here`, or `all`.

    Where this machine has none and nothing is chosen they are those of the only other machine, and the note says so.
    A result without a machine description stays. UsageError if several others have some, or none has the chosen id.
    `flag` is what chooses in a message; `apart`: the caller keeps machines apart, so several others are all shown.
    """
    every = list(results)
    found = {r.machine.id: r.machine for r in every if known(r)}
    if chosen == ALL or not found:
        return Share(every)
    if chosen in ("", HERE):
        whose = next(iter(found)) if not chosen and len(found) == 1 else here.id
        if not chosen and whose not in found:
            if apart:
                return Share(every)
            raise _several(found, every, flag)
    else:
        whose = _named(found, here, chosen)
    return Share(
        [r for r in every if r.machine.id == whose or not known(r)],
        _said(every, found, whose, here, f"{flag} all" if apart else flag),
    )


def _named(found: Mapping[str, Machine], here: Machine, chosen: str) -> str:
    """Return the id that begins with `chosen`, or of the board that is called so; UsageError if there is not one."""
    ids = [id_ for id_ in {**found, here.id: here} if id_.startswith(chosen)]
    ids = ids or [id_ for id_, machine in found.items() if _is_board(machine, chosen)]
    if len(ids) == 1:
        return ids[0]
    what = "no machine's id" if not ids else "the ids of several machines"
    raise UsageError(
        "E-MIX-2",
        f"{what} in this store begin{'s' * (not ids)} with {chosen!r}",
        evidence=_listed(found),
    )


def _is_board(machine: Machine, chosen: str) -> bool:
    """Return whether a machine is the board called `chosen`: `orin_nano` for a Jetson Orin Nano."""
    facts = flat(machine.stable)
    boards = {str(v).lower().removeprefix("jetson ") for k, v in facts.items() if k.split(".")[-1] == "board"}
    return chosen.lower().replace("_", " ") in boards


def _several(found: Mapping[str, Machine], results: list[Result], flag: str) -> UsageError:
    counts = _counted(found, results)
    most = max(counts, key=lambda id_: counts[id_])
    return UsageError(
        "E-MIX-1",
        f"these results come from {len(found)} machines",
        evidence=_listed(found, counts),
        effect="The figures of one machine say nothing about another, so they are not combined",
        fix=f"{flag} {most[:8]}",
    )


def _counted(found: Mapping[str, Machine], results: Iterable[Result]) -> dict[str, int]:
    every = list(results)
    return {id_: sum(r.machine.id == id_ for r in every) for id_ in found}


def _said(
    results: list[Result], found: Mapping[str, Machine], whose: str, here: Machine, flag: str
) -> Message | None:
    """Return the one line about the machines: what was left out, and whose the results are if not this machine's."""
    counts = _counted(found, results)
    if len(found) == 1 and whose in found and whose != here.id:
        where = f"{name(found[whose])}, not of this machine"
        return Message("W-MIX-2", f"these results are all of {where}", effect="The answer is for that one")
    others = {id_: machine for id_, machine in found.items() if id_ != whose}
    if not others:
        return None
    left = sum(counts[id_] for id_ in others)
    return Message(
        "W-MIX-1",
        f"{left} result{'s' * (left != 1)} of {len(others)} other machine{'s' * (len(others) != 1)} left out",
        evidence=_listed(others, counts),
        effect="The figures of two machines are not combined",
        fix=flag if flag.endswith(ALL) else f"{flag} {next(iter(others))[:8]}",
    )


def one(results: Iterable[Result]) -> list[Result]:
    """Return the results; UsageError if they come from several machines."""
    every = list(results)
    found = {r.machine.id: r.machine for r in every if known(r)}
    if len(found) > 1:
        raise _several(found, every, "--machine")
    return every


def each(results: Iterable[Result]) -> list[list[Result]]:
    """Return the results of each machine, in the order of first appearance.

    Of several machines, one that is not known is left out, and so is a recording: its times are those of the machine
    that replayed it, not of a board.
    """
    every = list(results)
    known_ones = [r for r in every if known(r) and REPLAYED not in r.machine.state]
    ids = dict.fromkeys(r.machine.id for r in known_ones)
    if len({r.machine.id for r in every}) < 2 or not ids:
        return [every]
    return [[r for r in known_ones if r.machine.id == id_] for id_ in ids]


def _listed(machines: Mapping[str, Machine], counts: Mapping[str, int] | None = None) -> str:
    texts = [
        name(m) + (f": {counts[id_]} result{'s' * (counts[id_] != 1)}" if counts else "")
        for id_, m in machines.items()
    ]
    return "; ".join(texts[:4]) + ("; ..." if len(texts) > 4 else "")


def measured_by(where: Machine, chosen: str) -> None:
    """Raise UsageError if `chosen` names another machine than `where`, which is about to measure."""
    if chosen and chosen != HERE and not where.id.startswith(chosen):
        raise UsageError(
            "E-MIX-3",
            f"this machine is {name(where)}, not {chosen}",
            effect="Results of this machine would not join that machine's results",
            fix=f"--machine {where.id[:8]}, or measure on that machine",
        )
