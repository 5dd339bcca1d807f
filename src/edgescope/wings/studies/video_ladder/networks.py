"""The ladder study's other figure: networks in fp32 and in fp16, by whatever inference the store holds of both."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field, replace

from edgescope.analysis.cells.replicates import MEASURED, across, of_fields, quotient
from edgescope.analysis.cells.row import Row
from edgescope.records import Field, Measured, Result, Trial
from edgescope.wings.studies.claim import Found, Voice, heard, held, unknown
from edgescope.wings.studies.page import Reading

FULL, HALF = "fp32", "fp16"
MISSING = (
    "not enough networks ran in fp32 and fp16: "
    "edgescope sweep --model resnet50,squeezenet1_1 --device cuda --precision fp32,fp16"
)


@dataclass(frozen=True)
class Network:
    """One network in one engine, in both precisions."""

    trial: Trial
    """That of fp32."""
    full: Sequence[Result] = field(repr=False)
    half: Sequence[Result] = field(repr=False)

    @property
    def name(self) -> str:
        """Return the network and its engine."""
        batch = f", batch {self.trial.batch}" if self.trial.batch > 1 else ""
        return f"{self.trial.model.partition('#')[0]}, {self.trial.backend}{batch}"

    @property
    def gain(self) -> Field:
        """Return the samples per second of fp16 over those of fp32."""
        return quotient(self.half, self.full, "throughput_sps")

    @property
    def rows(self) -> list[Row]:
        """Return both as rows of evidence."""
        both = (self.full[0], self.half[0])
        return [Row(trial=r.trial, status=r.status, verdict=r.verdict, metrics=r.metrics) for r in both]


def wanted(trial: Trial, device: str) -> bool:
    """Return whether a trial may be one side of a pair: plain inference, one query at a time."""
    how = (trial.device, trial.workload, trial.scenario, trial.colocated, trial.in_flight, trial.processes)
    return trial.precision in (FULL, HALF) and how == (device, Trial.workload, Trial.scenario, "", 1, 1)


def networks(results: Iterable[Result], device: str) -> list[Network]:
    """Return the networks that finished in both precisions, all else equal."""
    pairs: dict[str, dict[str, list[Result]]] = {}
    for result in results:
        if wanted(result.trial, device) and result.status in MEASURED:
            same = replace(result.trial, precision=FULL, min_agreement=None).cell
            pairs.setdefault(same, {FULL: [], HALF: []})[result.trial.precision].append(result)
    return [Network(p[FULL][0].trial, p[FULL], p[HALF]) for p in pairs.values() if p[FULL] and p[HALF]]


def readings(found: Sequence[Network]) -> list[Reading]:
    """Return a row for each network."""
    return [
        {
            "network": n.name,
            "fp32_sps": across(n.full, "throughput_sps"),
            "fp16_sps": across(n.half, "throughput_sps"),
            "fp16_gain": n.gain,
        }
        for n in found
    ]


def slower(found: Sequence[Network]) -> Iterator[Voice | None]:
    """Yield whether each network is slower in fp16."""
    for n in found:
        yield held(n.gain, (f"{n.name}, fp16 over fp32: ", ""), n.rows, rises=False)


def depends(found: Sequence[Network]) -> Found:
    """Return whether what fp16 changes differs from network to network: the widest pair of gains lies apart."""
    known = sorted(((n.gain.value, n.name), n) for n in found if isinstance(n.gain, Measured))
    if len(known) < 2:
        return unknown(MISSING)
    a, b = known[0][1], known[-1][1]
    words = f"fp16 over fp32 of {b.name}, over that of {a.name}: "
    voice = held(of_fields(b.gain, a.gain), (words, ""), [*a.rows, *b.rows])
    return heard([voice] if voice else [], "widest pair", MISSING)
