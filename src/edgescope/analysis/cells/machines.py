"""Select the results of one machine: numbers of two machines are never compared silently.

Copying one store's folders into another merges two machines' results; listing and reporting keep them apart.
Recommending, comparing and regenerating a study must not: a cell that another, faster machine ran would win.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

from edgescope.errors import UsageError
from edgescope.records import Json, Machine, Result, Trial
from edgescope.registry import REPLAYED

HERE = "here"
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


def one(results: Iterable[Result], chosen: str = "") -> list[Result]:
    """Return the results of one machine: the only one, or the one whose id begins with `chosen`.

    UsageError if there are several and none was chosen, or if none has that id. A result without a machine
    description stays.
    """
    results = list(results)
    machines = {r.machine.id: r.machine for r in results if known(r)}
    if chosen:
        found = [id_ for id_ in machines if id_.startswith(chosen)]
        if len(found) != 1:
            what = "no machine's id" if not found else "the ids of several machines"
            raise UsageError(
                "E-MIX-2",
                f"{what} in this store begin{'s' * (not found)} with {chosen!r}",
                evidence=_listed(machines),
            )
        return [r for r in results if r.machine.id == found[0]]
    if len(machines) > 1:
        counts = {id_: sum(r.machine.id == id_ for r in results) for id_ in machines}
        most = max(counts, key=lambda id_: counts[id_])
        raise UsageError(
            "E-MIX-1",
            f"these results come from {len(machines)} machines",
            evidence=_listed(machines, counts),
            effect="The figures of one machine say nothing about another, so they are not combined",
            fix=f"--machine {most[:8]}",
        )
    return results


def _listed(machines: Mapping[str, Machine], counts: Mapping[str, int] | None = None) -> str:
    texts = [
        name(m) + (f": {counts[id_]} result{'s' * (counts[id_] != 1)}" if counts else "")
        for id_, m in machines.items()
    ]
    return "; ".join(texts[:4]) + ("; ..." if len(texts) > 4 else "")


def unmixed(trials: Sequence[Trial], results: Iterable[Result], where: Machine, chosen: str = "") -> None:
    """Raise UsageError if another machine has measured some of these trials into the same store.

    `chosen` is `here`, or the beginning of this machine's id: then this machine measures the whole grid for itself.
    """
    if chosen and chosen != HERE:
        if where.id.startswith(chosen):
            return
        raise UsageError(
            "E-MIX-3",
            f"this machine is {name(where)}, not {chosen}",
            effect="Results of this machine would not join that machine's results",
            fix=f"--machine {where.id[:8]}, or sweep on that machine",
        )
    ids = {t.id for t in trials}
    others = [r for r in results if r.trial.id in ids and r.machine.id != where.id and known(r)]
    if chosen == HERE or not others:
        return
    strangers = {r.machine.id: r.machine for r in others}
    newest = others[-1].machine
    raise UsageError(
        "E-MIX-4",
        f"another machine has measured {len({r.trial.id for r in others})} of these {len(ids)} cells into this store",
        evidence=f"{_listed(strangers)}; this is {name(where)}; they differ in {differences(newest, where)}",
        effect="They would be measured again here, and one store would hold two machines' results",
        fix=f"--store ANOTHER, or --machine {where.id[:8]} to measure the whole grid on this one",
    )


def differences(a: Machine, b: Machine) -> str:
    """Return the stable facts in which two machines differ, `cpu.model, nvidia.gpus`."""
    left, right = flat(a.stable), flat(b.stable)
    names = [key for key in sorted(left.keys() | right.keys()) if left.get(key) != right.get(key)]
    return ", ".join(names[:4]) + (", ..." if len(names) > 4 else "") or "nothing"
