"""A board with little free memory: what is needed is said before anything starts, and what fits is measured."""

from types import SimpleNamespace

import pytest

from edgescope.isolate import fresh
from edgescope.isolate.fresh import FLOOR_BYTES, LEAST_BYTES, Limits
from edgescope.records import Status, Trial

MB = 1_000_000


@pytest.fixture
def board(monkeypatch):
    """A board of 4 GB with so many bytes free."""

    def made(free):
        memory = SimpleNamespace(available=lambda: free, total=4000 * MB)

        class Memory:
            def __enter__(self):
                return memory

            def __exit__(self, *exc):
                pass

        monkeypatch.setattr(fresh, "Memory", Memory)

    return made


def test_a_board_with_300_mb_free_says_what_it_needs_and_starts_nothing(board, monkeypatch):
    board(300 * MB)
    monkeypatch.setattr(fresh, "GuardedProcess", lambda *a: pytest.fail("it was started"))
    result = fresh.run(Trial(model="null", backend="null"))
    assert result.status is Status.OOM and result.reason.code == "E-MEM-2"
    assert "500 MB" in result.reason.what and "300 MB are free" in result.reason.evidence
    assert "--memory-floor 100 " in result.reason.fix


def test_what_fits_under_the_floor_that_it_names_is_measured(board):
    board(300 * MB)
    assert fresh.no_room(Limits(floor_bytes=100 * MB)) is None
    board(FLOOR_BYTES + LEAST_BYTES)
    assert fresh.no_room(Limits()) is None
    board(FLOOR_BYTES + LEAST_BYTES - 1)
    assert fresh.no_room(Limits()).code == "E-MEM-2"


def test_where_nothing_fits_no_floor_is_named(board):
    board(LEAST_BYTES)
    assert "floor" not in fresh.no_room(Limits()).fix
