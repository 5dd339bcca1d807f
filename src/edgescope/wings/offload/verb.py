"""Decide whether the edge, the cloud or both should answer queries: `edgescope.offload(edge, cloud, network)`.

If the size of a query or of its answer is not given, it is taken from the model, and the answer says so.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from edgescope import bench
from edgescope.analysis.cells import ids, machines
from edgescope.analysis.cells.machines import name
from edgescope.analysis.cells.objective import parse, wanted
from edgescope.analysis.cells.replicates import across
from edgescope.analysis.cells.row import row_of
from edgescope.analysis.cells.variants import table
from edgescope.errors import EdgescopeError, Message, UsageError
from edgescope.models import zoo
from edgescope.records import Answer, Json, Result
from edgescope.runner.setup import Stored, Tell, silent, store_of
from edgescope.store.results import Store
from edgescope.wings.offload import page as words
from edgescope.wings.offload.answer import Question, question
from edgescope.wings.offload.model import Model, Place, Request, service
from edgescope.wings.offload.network import Profile, load, profile, read_size


def place(results: Sequence[Result], which: str, side: str) -> Place:
    """Return the Place of one cell, from its replicates on one machine (with raw rows).

    `which` is the name as typed, `side` is edge or cloud. UsageError if it names several cells, or one that cannot be
    used.
    """
    cells = {r.trial.cell: f"{r.trial.model} {r.trial.label}" for r in results}
    if len(cells) > 1:
        listing = ", ".join(f"{cell[:8]} ({label})" for cell, label in cells.items())
        raise UsageError("E-OFF-1", f"{which!r} names {len(cells)} cells", evidence=listing, fix="a cell id")
    row = table(results).rows[0]
    done = list(row.replicates.values())
    times = service(done) if done and not row.rejected else None
    if times is None:
        why = row.rejected or f"status {row.status.value}: no raw rows of a measured window"
        raise UsageError("E-OFF-2", f"the {side}'s cell {which!r} cannot be used", evidence=why)
    first = done[0].machine
    return Place(row, times, name(first), first.id, across(done, "idle_power_w"))


def remarks(local: Place, remote: Place) -> list[Message]:
    """Return the warnings about this pair; UsageError if the two answer different queries."""
    a, b = local.row.trial, remote.row.trial
    if a.batch != b.batch:
        raise UsageError(
            "E-OFF-3",
            "the two places answer queries of different size",
            evidence=f"batch {a.batch} at the edge, {b.batch} in the cloud",
            fix="cells of one batch size",
        )
    out = []
    if local.machine_id == remote.machine_id:
        effect = "The answer is about the network and the two variants, not about another machine"
        out.append(
            Message("W-OFF-1", "both places are the same machine", evidence=local.machine, effect=effect)
        )
    if a.model != b.model:
        out.append(
            Message("W-OFF-2", "the places run different models", evidence=f"{a.model} here, {b.model} there")
        )
    for side, where in (("edge", local), ("cloud", remote)):
        trust = where.row.verdict.trust.value
        if trust != "CLEAN":
            evidence = "; ".join(where.row.verdict.evidence)[:160]
            out.append(Message("W-OFF-3", f"the {side}'s measurement is {trust}", evidence=evidence))
    return out


# -- the question --------------------------------------------------------------------------------------------


SCORES_BYTES = 4000
"""A thousand float32 scores: the raw answer of an ImageNet classifier."""
Network = Profile | Mapping[str, Json] | Path | str


@dataclass(frozen=True)
class Sent:
    """The size of every query and its answer, and their rate; None: from the model's inputs and outputs."""

    payload: str | None = None
    """Bytes sent for one sample: `40kB`."""
    response_size: str | None = None
    """Bytes sent back for one sample: `4kB`."""
    rate: float | None = None
    """Queries a second in total; None: one at a time, or the rate of a throughput constraint."""
    poisson: bool = True
    remote_servers: int = 1
    radio_power: float | None = None
    """Watts of the radio while it sends."""
    radio_energy: float | None = None
    """Joules of the radio for each MB sent or received."""
    seed: int = 0


@dataclass(frozen=True, repr=False)
class Offloaded(Answer):
    """Where queries are answered best, with every option that was compared."""

    question: Question

    def lines(self) -> Iterator[str]:
        """Yield the pick, its reason, and what would change it."""
        yield f"answer: {words.answered(self.question)}"
        yield f"why: {self.question.answer.reason}"
        yield from words.flips(self.question)

    def records(self) -> list[dict[str, Json]]:
        """Return one row for each option."""
        return [{"option": o.name} | row_of(o.figures) for o in self.question.answer.options]


def offload(
    local: str,
    remote: str,
    network: Network,
    *,
    objective: str = "latency",
    constraints: Sequence[str] = (),
    sent: Sent = Sent(),
    store: Stored = None,
    remote_store: Stored = None,
    machine: str = "",
    remote_machine: str = "",
    tell: Tell = silent,
) -> Offloaded:
    """Return where queries are answered best, given a cell measured at the edge, one in the cloud, and a network.

    A cell is named by its label, the beginning of its id or `latest`; the network is a mapping (rtt="20ms",
    bandwidth="20Mbit"), the file of a profile, or a Profile.
    """
    goals, way = wanted(objective, constraints), _network(network)
    here = store_of(store)
    there = here if remote_store is None else store_of(remote_store)
    near = _place(here, local, "edge", Whose("--machine", machine, tell))
    far = _place(there, remote, "cloud", Whose("--remote-machine", remote_machine, tell))
    request, notes = _request(sent, constraints, near)
    found = question(Model(near, far, request, goals), way, [*map(str, remarks(near, far)), *notes])
    return Offloaded(found)


def _network(network: Network) -> Profile:
    if isinstance(network, Profile):
        return network
    return profile(load(Path(network)) if isinstance(network, Path | str) else network)


@dataclass(frozen=True)
class Whose:
    """The machine that a place is on, as its flag chose it; '': this one if it measured the cell."""

    flag: str
    machine: str
    tell: Tell

    def share(self, results: Sequence[Result]) -> list[Result]:
        """Return that machine's results; the answer names the machine, so only those left out are told of."""
        found = machines.share(results, bench.here(), self.machine, self.flag)
        if found.note is not None and found.note.code == "W-MIX-1":
            self.tell(str(found.note))
        return found.results


def _place(store: Store, which: str, side: str, whose: Whose) -> Place:
    """Return the place of a label, the beginning of an id or `latest`: all replicates of its cell on its machine."""
    every = list(store.results())
    labelled = [r for r in every if which in (r.trial.label, f"{r.trial.model} {r.trial.label}")]
    if which == ids.LATEST:
        found = [ids.one(whose.share(every) if every else every, which)]
    else:
        found = whose.share(labelled or ids.starting_with(every, which))
    cells, where = {r.trial.cell for r in found}, {r.machine.id for r in found}
    return place(
        store.fulls(r for r in every if r.trial.cell in cells and r.machine.id in where), which, side
    )


def _request(sent: Sent, constraints: Sequence[str], near: Place) -> tuple[Request, list[str]]:
    """Return the request that both places get, and a note for each assumption."""
    _check(sent)
    batch = near.row.trial.batch
    up, going = _size(sent.payload) if sent.payload else _input_bytes(near)
    down, back = _size(sent.response_size) if sent.response_size else _answer_bytes(near)
    notes = [note for note in (going, back) if note]
    rate = sent.rate
    floors = [c.limit for c in map(parse, constraints) if c.metric.name == "throughput_sps"]
    if rate is None and floors:
        rate = max(floors) / batch
        notes.append(f"computed for {rate:g} queries/s, the rate of the throughput constraint")
    if rate is not None and not 0 < rate < 1e9:
        raise UsageError("E-OFF-7", f"--rate must be positive, not {rate:g}")
    request = Request(
        up_bytes=up * batch,
        down_bytes=down * batch,
        rate=rate,
        poisson=sent.poisson,
        servers=sent.remote_servers,
        radio_w=sent.radio_power,
        radio_j_per_mb=sent.radio_energy,
        seed=sent.seed,
    )
    return request, notes


def _check(sent: Sent) -> None:
    given = {"--radio-power": sent.radio_power, "--radio-energy": sent.radio_energy}
    for flag, value, least in (
        ("--remote-servers", sent.remote_servers, 1),
        *((k, v, 0) for k, v in given.items()),
    ):
        if value is not None and not least <= value < 1e6:
            raise UsageError("E-OFF-7", f"{flag} must be at least {least}, not {value:g}")


def _size(text: str) -> tuple[float, str]:
    try:
        return read_size(text), ""
    except ValueError as error:
        raise UsageError("E-OFF-5", f"a size cannot be read: {error}", fix="--payload 40kB") from error


def _input_bytes(near: Place) -> tuple[float, str]:
    """Return the size of the model's raw input tensor in bytes and a note; UsageError if it is unknown."""
    trial = near.row.trial
    try:
        inputs = zoo.get(trial.model, trial.shapes).inputs
    except EdgescopeError as error:
        inputs, why = (), error.what
    else:
        why = "it has no inputs"
    size = sum(math.prod(i.shape) * _width(i.dtype) for i in inputs)
    if not size:
        raise UsageError(
            "E-OFF-6",
            f"the input size of one sample of {trial.model} is unknown",
            evidence=why,
            fix="--payload 40kB (for example an encoded picture)",
        )
    return (
        size,
        f"sends the raw input tensor, {size / 1e3:.4g} kB a sample; an encoded picture is smaller: --payload 40kB",
    )


def _width(dtype: str) -> int:
    return np.dtype(dtype).itemsize


def _answer_bytes(near: Place) -> tuple[float, str]:
    """Return the size of a classifier's answer in bytes and a note; UsageError for other models.

    A result does not store the size of its outputs.
    """
    info = next(iter(near.row.replicates.values())).model
    if info is None or info.task != "classify":
        raise UsageError(
            "E-OFF-6",
            f"the output size of one sample of {near.row.trial.model} is unknown",
            evidence="a result does not store the size of its outputs",
            fix="--response-size 4kB",
        )
    return (
        SCORES_BYTES,
        f"sends back 1000 scores as float32, {SCORES_BYTES / 1e3:g} kB a sample (assumed: --response-size)",
    )
