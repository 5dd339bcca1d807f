"""How the takeaways of the training study are judged: ratios of epoch times over pairs of runs."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from edgescope.wings.studies.claim import Claim, Voice, held
from edgescope.wings.studies.edge_training.cells import NAME, Cells, Place, figure, networks
from edgescope.wings.studies.paper import papers

SAME = 1.05
"""Epochs whose ratio lies within this factor take as long."""
VARIES = 0.05
"""Largest coefficient of variation over runs that counts as little."""
FEW = 3
FIRST, LATER = "epoch_first_s", "epoch_later_s"
MISSING = "edgescope train characterize measures its cells"


def _over(
    table: Cells,
    words: str,
    name: str,
    over: Place,
    under: Place,
    *,
    rises: bool = True,
    under_name: str = "",
) -> Voice | None:
    ratio = table.ratio(name, over, under, under_name)
    if ratio is None:
        return None
    return held(ratio, (f"{over.model}, {words}: ", ""), table.of(over, under), rises=rises)


def _same(table: Cells, words: str, name: str, over: Place, under: Place) -> Voice | None:
    """Return the voice of two cells that should take as long."""
    ratio = table.ratio(name, over, under)
    if ratio is None:
        return None
    known = ratio.lo is not None and ratio.hi is not None
    inside = known and float(ratio.lo or 0) >= 1 / SAME and float(ratio.hi or 0) <= SAME
    apart = known and (float(ratio.lo or 0) > SAME or float(ratio.hi or 0) < 1 / SAME)
    bounds = f" [{ratio.lo:.3g}, {ratio.hi:.3g}]" if known else " (no interval)"
    text = f"{over.model}, {words}: {ratio.value:.3g}x{bounds}"
    return Voice(True if inside else False if apart else None, text, table.of(over, under), ratio.value)


def _usual(table: Cells) -> Iterator[Place]:
    """Yield the usual cell of each network that was measured."""
    protocol = papers()[NAME].page["protocol"]
    usual = (protocol["workers"], protocol["batch"], "as_is", "as_is")
    for network in networks():
        found = [key for key in table.runs if key.model == network.model and key[1:5] == usual]
        yield from sorted(found)


def _pipelining(table: Cells) -> Iterator[Voice | None]:
    for key in _usual(table):
        none, one = key._replace(workers=0), key._replace(workers=1)
        yield _over(table, "no worker over one", LATER, none, one)


def _enough(table: Cells) -> Iterator[Voice | None]:
    for key in _usual(table):
        waits = [s for run in table.of(key) if (s := figure(run, "stall_share")) is not None]
        if waits and float(np.mean(waits)) < VARIES:
            yield _same(table, "four workers over two", LATER, key._replace(workers=4), key)


def _first(table: Cells) -> Iterator[Voice | None]:
    for network in networks():
        for key in table.runs:
            if key.model == network.model and not network.packed and key.medium == "as_is":
                words = f"first epoch over later ones, {key.workers} workers, batch {key.batch}"
                yield _over(table, words, FIRST, key, key, under_name=LATER)


def _media(table: Cells) -> Iterator[tuple[str, Place, Place]]:
    for key in table.runs:
        if key.medium in ("sd", "hdd"):
            yield key.medium, key, key._replace(medium="nvme")


def _medium_cold(table: Cells) -> Iterator[Voice | None]:
    for name, slow, fast in _media(table):
        yield _over(table, f"first epoch, {name} over nvme (emulated)", FIRST, slow, fast)


def _medium_warm(table: Cells) -> Iterator[Voice | None]:
    for name, slow, fast in _media(table):
        yield _same(table, f"later epochs, {name} over nvme (emulated)", LATER, slow, fast)


def _batch(table: Cells) -> Iterator[Voice | None]:
    for key in _usual(table):
        yield _over(table, "batch 4 over 16", LATER, key._replace(batch=4), key)


def _cores(table: Cells) -> Iterator[Voice | None]:
    for key in _usual(table):
        yield _over(table, "one CPU over all", LATER, key._replace(mode="cpus=0"), key)


def _variability(table: Cells) -> Iterator[Voice | None]:
    for key in _usual(table):
        times = [t for run in table.of(key) if (t := figure(run, LATER)) is not None]
        if len(times) >= FEW:
            varies = float(np.std(times, ddof=1) / np.mean(times))
            text = f"{key.model}: {varies:.1%} over {len(times)} runs"
            yield Voice(varies <= VARIES, text, table.of(key), varies)


pipelining = Claim(_pipelining, MISSING, "epoch without a worker over one with")
enough_workers = Claim(
    _enough, "no network here runs with two workers and hardly waits", "four workers over two"
)
first_epoch = Claim(_first, MISSING, "first epoch over later ones")
medium_cold = Claim(_medium_cold, MISSING, "slow medium over NVMe")
medium_warm = Claim(_medium_warm, MISSING, "slow medium over NVMe")
batch = Claim(_batch, MISSING, "batch 4 over 16")
cores = Claim(_cores, "the cells with fewer CPUs were not measured", "one CPU over all")
variability = Claim(_variability, "fewer than three runs of a cell")
