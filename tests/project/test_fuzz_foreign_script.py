"""benchmarks/fuzz_foreign.py: 10^4 records of every kind that it knows, and that it notices what it looks for."""

import random
import sys
from pathlib import Path

import pytest

from edgescope.errors import UsageError

sys.path.insert(0, str(Path(__file__).parents[2] / "benchmarks"))
import fuzz_foreign
from fuzz_foreign import Told

RECORDS = 10_000


@pytest.mark.slow
@pytest.mark.parametrize("kind", fuzz_foreign.kinds())
def test_nothing_of_a_damaged_file_is_lost_without_a_note(kind):
    found = fuzz_foreign.fuzz(kind, seed=46, records=RECORDS, jobs=1)
    assert found["records"] >= RECORDS and found["failures"] == 0, found["first"]
    assert found["read"] > RECORDS / 4, "most of what is written is good"
    assert found["noted"] > 0, "some of it is damaged"


def outcome(monkeypatch, tmp_path, made):
    def attempt(rng: random.Random, folder: Path) -> Told:
        if isinstance(made, Exception):
            raise made
        return made

    monkeypatch.setattr(fuzz_foreign, "of", lambda kind: attempt)
    return fuzz_foreign.case("none", "none:0:0:0", tmp_path)


@pytest.mark.parametrize(
    ("made", "failed", "refused"),
    [
        (Told(10, 10), 0, 0),
        (Told(10, 8, 2), 0, 0),
        (Told(10, 8, 1), 1, 0),
        (Told(10, 8, 2, good=8), 0, 0),
        (Told(10, 8, 2, good=9), 1, 0),
        (UsageError("E-X-1", "refused"), 0, 1),
        (KeyError("foreign"), 1, 0),
    ],
)
def test_what_is_lost_or_foreign_is_a_failure_and_a_refusal_is_none(
    monkeypatch, tmp_path, made, failed, refused
):
    found = outcome(monkeypatch, tmp_path, made)
    assert (len(found.failed), found.refused, found.cases) == (failed, refused, 1)


def test_a_chunk_stops_at_its_records_and_names_its_cases(monkeypatch):
    monkeypatch.setattr(fuzz_foreign, "of", lambda kind: lambda rng, folder: Told(30, 0))
    found = fuzz_foreign.chunk("none", 7, 2, 100)
    assert found.cases == 100 and [name for name, _ in found.failed][:2] == ["none:7:2:0", "none:7:2:1"]
    monkeypatch.setattr(fuzz_foreign, "of", lambda kind: lambda rng, folder: Told(30, 30))
    assert fuzz_foreign.chunk("none", 7, 2, 100).cases == 4
