"""Files that other programs wrote, damaged or oddly varied: nothing is lost without a note, no foreign exception.

A kind of file is one module in `fuzz_kinds/`, found by its name; nothing else lists it. It has one function:

    attempt(rng, folder) -> Told    write one file of a few hundred records at most into the folder, spoil it by `rng`,
                                    read it as a user would, say how many records there were and what became of them

`rng` alone decides, so a case can be made again. What the function must do itself is compare values that it knows
(an AssertionError says what was wrong); what is checked here is the same for all kinds:

- no exception but edgescope's own leaves `attempt`; one of edgescope's own means that the whole file was refused with
  a reason, which is no loss. A kind that may not refuse a certain file catches it and asserts.
- records written <= records read + records that a note counts: nothing is lost without a word.
- undamaged records written <= records read: damage costs itself.

    python benchmarks/fuzz_foreign.py                            # 10^6 records of each kind
    python benchmarks/fuzz_foreign.py --kind kineto --records 20000 --no-publish
    python benchmarks/fuzz_foreign.py --only kineto:0:3:17       # one case again, with its traceback
"""

from __future__ import annotations

import argparse
import importlib
import os
import pkgutil
import random
import sys
import tempfile
import time
import traceback
from collections.abc import Callable, Iterator
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

from facts import publish

from edgescope.errors import EdgescopeError

HERE = Path(__file__).parent / "fuzz_kinds"
#: Records of one chunk: a chunk is the work of one process, and its number is part of a case's name.
CHUNK, MOST_TOLD = 10_000, 20


@dataclass(frozen=True)
class Told:
    """What became of the records of one file."""

    written: int
    """Records in the file, the damaged ones among them."""
    read: int
    """Records that were read."""
    noted: int = 0
    """Records that notes count as left out."""
    good: int | None = None
    """Records that nothing was done to, which must all be read; None where that is not known."""


@dataclass(frozen=True)
class Tried:
    """The sums of some cases."""

    cases: int = 0
    records: int = 0
    read: int = 0
    noted: int = 0
    refused: int = 0
    """Files that edgescope refused with an error of its own."""
    failed: tuple[tuple[str, str], ...] = ()
    """Name of a case that found a fault, its traceback."""

    def __add__(self, other: Tried) -> Tried:
        return Tried(*(getattr(self, k) + getattr(other, k) for k in self.__dataclass_fields__))


Attempt = Callable[[random.Random, Path], Told]


def kinds() -> list[str]:
    """Return the names of the kinds: the modules of the folder."""
    return sorted(found.name for found in pkgutil.iter_modules([str(HERE)]))


def of(kind: str) -> Attempt:
    """Return the function of a kind."""
    found: Attempt = importlib.import_module(f"fuzz_kinds.{kind}").attempt
    return found


def check(told: Told) -> None:
    """Raise AssertionError if records are gone without a word, or good ones with the bad."""
    lost = told.written - told.read - told.noted
    assert lost <= 0, f"{lost} of {told.written} records were lost without a note: {told}"
    assert told.good is None or told.read >= told.good, f"damage took good records with it: {told}"


def case(kind: str, name: str, folder: Path) -> Tried:
    """Try one case; `name` seeds it."""
    try:
        told = of(kind)(random.Random(name), folder)
        check(told)
    except EdgescopeError as error:
        assert str(error).startswith(f"{error.code}: ")
        return Tried(cases=1, records=1, refused=1)
    except Exception:  # whatever comes out is what this looks for
        return Tried(cases=1, records=1, failed=((name, traceback.format_exc(limit=-6)),))
    return Tried(1, max(told.written, 1), told.read, told.noted)


def chunk(kind: str, seed: int, number: int, records: int) -> Tried:
    """Try cases of one chunk until they have had this many records."""
    shm, total = Path("/dev/shm"), Tried()
    with tempfile.TemporaryDirectory(dir=shm if shm.is_dir() else None) as folder:
        while total.records < records:
            total += case(kind, f"{kind}:{seed}:{number}:{total.cases}", Path(folder))
    return total


def _chunks(records: int) -> Iterator[tuple[int, int]]:
    for number, at in enumerate(range(0, records, CHUNK)):
        yield number, min(CHUNK, records - at)


def fuzz(kind: str, seed: int, records: int, jobs: int) -> dict[str, Any]:
    """Try `records` records in `jobs` processes (1: in this one); return figures and what failed."""
    start = time.monotonic()
    numbers, sizes = zip(*_chunks(records), strict=True)
    one = partial(chunk, kind, seed)
    if jobs == 1:
        total = sum(map(one, numbers, sizes), Tried())
    else:
        with ProcessPoolExecutor(jobs) as pool:
            total = sum(pool.map(one, numbers, sizes), Tried())
    for name, trace in total.failed[:MOST_TOLD]:
        print(f"{name}\n{trace}", file=sys.stderr)
    told = [{"case": name, "error": t.strip().splitlines()[-1]} for name, t in total.failed[:MOST_TOLD]]
    return {
        **{k: getattr(total, k) for k in ("cases", "records", "read", "noted", "refused")},
        **{"seed": seed, "seconds": round(time.monotonic() - start, 1)},
        **{"failures": len(total.failed), "first": told},
    }


def main() -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--kind", choices=kinds(), action="append", help="of these kinds only")
    parser.add_argument("--records", type=int, default=1_000_000)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--jobs", type=int, default=len(os.sched_getaffinity(0)))
    parser.add_argument("--only", metavar="KIND:SEED:CHUNK:NUMBER", help="try one case again")
    parser.add_argument("--no-publish", action="store_true")
    args = parser.parse_args()
    if args.only:
        with tempfile.TemporaryDirectory() as folder:
            found = case(args.only.partition(":")[0], args.only, Path(folder))
        print(found.failed[0][1] if found.failed else f"{args.only}: nothing is wrong")
        return len(found.failed)
    figures = {kind: fuzz(kind, args.seed, args.records, args.jobs) for kind in args.kind or kinds()}
    for kind, got in figures.items():
        print(f"{kind}: {got['records']} records, {got['failures']} failures, {got['seconds']} s")
    met = not any(got["failures"] for got in figures.values())
    if not args.no_publish:
        publish("fuzz_foreign", figures, met=met)
    return 0 if met else 1


if __name__ == "__main__":
    sys.exit(main())
