"""What a search knew when it began: kept once, found again by the same question on the same machine, never guessed."""

import json
from datetime import datetime, timezone
from types import SimpleNamespace

import pytest

from edgescope.analysis.cells.objective import wanted
from edgescope.search import loop
from edgescope.search.loop import Spent, counting

ASKED = wanted("latency", ["p99<=33ms"])


def cells(root, machine="m", packages="a"):
    where = SimpleNamespace(id=machine, state={"packages": packages})
    return SimpleNamespace(store=SimpleNamespace(root=root), where=where, since="")


def written(root):
    """What lies in the folder of the machine."""
    return [json.loads(path.read_text()) for path in (root / "m").iterdir()]


def test_what_the_store_held_at_the_beginning_stays_what_it_held(tmp_path):
    mine = cells(tmp_path)
    assert loop.known(mine, ["a", "b"], ASKED, 0, {"b"}) == {"b"}
    assert loop.known(mine, ["b", "a"], ASKED, 0, {"a", "b"}) == {"b"}, "the same grid in another order"
    assert written(tmp_path) == [{"known": ["b"]}]


@pytest.mark.parametrize(
    ("mine", "grid", "asked", "seed"),
    [
        ({"machine": "other"}, ["a"], ASKED, 0),
        ({"packages": "newer"}, ["a"], ASKED, 0),
        ({}, ["a", "c"], ASKED, 0),
        ({}, ["a"], wanted("throughput", ["p99<=33ms"]), 0),
        ({}, ["a"], wanted("latency", ["p99<=34ms"]), 0),
        ({}, ["a"], ASKED, 1),
    ],
)
def test_another_search_begins_anew(tmp_path, mine, grid, asked, seed):
    assert loop.known(cells(tmp_path), ["a"], ASKED, 0, {"b"}) == {"b"}
    assert loop.known(cells(tmp_path, **mine), grid, asked, seed, {"c"}) == {"c"}


@pytest.mark.parametrize("page", ["[1]", "{}", '{"known": 3}', "no json"])
def test_what_cannot_be_read_is_begun_anew(tmp_path, page):
    loop.known(cells(tmp_path), ["a"], ASKED, 0, {"b"})
    (path,) = (tmp_path / "m").iterdir()
    path.write_text(page)
    assert loop.known(cells(tmp_path), ["a"], ASKED, 0, {"c"}) == {"c"}
    assert written(tmp_path) == [{"known": ["c"]}]


def test_the_seconds_of_every_session_are_added_up(tmp_path):
    first = Spent(cells(tmp_path), {"model": "m"}, anew=False)
    assert first.seconds == 0.0
    first.keep(20.0)
    first.keep(30.0)
    second = Spent(cells(tmp_path), {"model": "m"}, anew=False)
    assert second.seconds == 30.0
    second.keep(5.0)
    assert Spent(cells(tmp_path), {"model": "m"}, anew=False).seconds == 35.0
    assert Spent(cells(tmp_path), {"model": "n"}, anew=False).seconds == 0.0
    anew = Spent(cells(tmp_path), {"model": "m"}, anew=True)
    assert anew.seconds == 0.0
    for page in ("[1]", "{}", '{"seconds": "long"}'):
        anew.path.write_text(page)
        assert Spent(cells(tmp_path), {"model": "m"}, anew=False).seconds == 0.0


def counted(root, *, cached, ends=True):
    """Since when results count; the run ends, or is killed."""
    mine = cells(root)
    manager = counting(mine, {"model": "m"}, cached=cached)
    assert manager.__enter__() is mine
    if ends:
        manager.__exit__(None, None, None)
    return mine.since


def test_with_the_cache_every_result_counts_and_nothing_is_written(tmp_path):
    assert counted(tmp_path, cached=True) == "" and not (tmp_path / "m").exists()


def test_without_the_cache_results_count_from_now_on_and_later_runs_with_it_use_them(tmp_path):
    before = datetime.now(timezone.utc).isoformat(timespec="milliseconds")
    since = counted(tmp_path, cached=False)
    assert before <= since <= datetime.now(timezone.utc).isoformat(timespec="milliseconds")
    assert written(tmp_path) == [{"since": since, "whole": True}]
    assert counted(tmp_path, cached=True) == since


@pytest.mark.parametrize("cached", [False, True])
def test_one_that_was_killed_goes_on_and_the_next_begins_again(tmp_path, monkeypatch, cached):
    stamps = iter(["2026-01-01", "2026-01-02"])
    clock = SimpleNamespace(now=lambda zone: SimpleNamespace(isoformat=lambda timespec: next(stamps)))
    monkeypatch.setattr(loop, "datetime", clock)
    assert counted(tmp_path, cached=False, ends=False) == "2026-01-01"
    assert written(tmp_path) == [{"since": "2026-01-01", "whole": False}]
    assert counted(tmp_path, cached=cached) == "2026-01-01"
    assert written(tmp_path) == [{"since": "2026-01-01", "whole": True}]
    assert counted(tmp_path, cached=False) == "2026-01-02"


def test_a_page_that_is_none_begins_anew(tmp_path):
    counted(tmp_path, cached=False)
    (path,) = (tmp_path / "m").iterdir()
    path.write_text("[1]")
    assert counted(tmp_path, cached=True) == ""
