"""list, show, rm: dates and names of results, one result again, results removed after asking."""

import io
import json
from dataclasses import replace

import pytest

from edgescope.cli.main import main
from edgescope.records import Status, Trial
from edgescope.store.results import Store
from making import result

NULL = Trial(model="null", backend="null")


@pytest.fixture
def store(tmp_path):
    made = Store(tmp_path / "store")
    for n, (batch, status) in enumerate([(1, Status.OK), (2, Status.FAILED), (4, Status.OK)]):
        trial = replace(NULL, batch=batch)
        extra = {"reason": "E-X-1: it broke."} if status is Status.FAILED else {}
        when = {
            "id_": f"{trial.id}-2026010{n + 1}T000000-{'abc'[n] * 6}",
            "started_at": f"2026-01-0{n + 1}T12:30:00",
        }
        made.save(result(trial, status=status, **extra, **when))
    return made


def typed(store, *words):
    return main([words[0], *words[1:], "--store", str(store.root)])


def names(store):
    return [r.id[-6:] for r in store.results()]


@pytest.mark.process
def test_a_listing_has_a_name_and_a_date_for_each(store, capsys):
    assert typed(store, "list") == 0
    head, *rows = capsys.readouterr().out.splitlines()
    assert "started (UTC)" in head
    assert [row.split()[:3] for row in rows] == [
        ["aaaaaa", "2026-01-01", "12:30"],
        ["bbbbbb", "2026-01-02", "12:30"],
        ["cccccc", "2026-01-03", "12:30"],
    ]


@pytest.mark.process
def test_an_empty_store_says_that_it_is_empty(tmp_path, capsys):
    empty = Store(tmp_path / "none")
    assert typed(empty, "list") == 0
    assert f"no such result in {empty.root}" in " ".join(capsys.readouterr().err.split())
    assert typed(empty, "show", "latest") == 2
    said = " ".join(capsys.readouterr().err.split())
    assert "E-STORE-5: " in said and said.endswith("Try: edgescope bench MODEL")


@pytest.mark.parametrize(
    ("flags", "fix"),
    [(("--status", "faild"), "--status failed"), (("--backend", "onxruntime"), "--backend onnxruntime")],
)
@pytest.mark.parametrize("verb", ["list", "rm"])
def test_a_mistyped_filter_is_refused_with_the_closest(store, capsys, verb, flags, fix):
    assert typed(store, verb, *flags) == 2
    assert capsys.readouterr().err.endswith(f"Try: {fix}\n")
    assert len(names(store)) == 3


@pytest.mark.parametrize("word", ["cccccc", "latest", replace(NULL, batch=4).id[:8]])
@pytest.mark.slow
def test_one_result_is_shown_by_any_of_its_names(store, capsys, word):
    assert typed(store, "show", word, "--json") == 0
    assert json.loads(capsys.readouterr().out)["trial"]["batch"] == 4
    assert typed(store, "show", word) == 0
    assert "null  null fp32 b4" in capsys.readouterr().out


@pytest.mark.slow
def test_show_ends_as_the_run_did_and_refuses_what_it_does_not_know(store, capsys):
    assert typed(store, "show", "bbbbbb") == 1
    assert typed(store, "show", "bbbbbb") == 1  # the same command, the same code
    assert typed(store, "show", "nosuch") == 2
    assert "E-STORE-5" in capsys.readouterr().err
    again = replace(next(iter(store.results())), id=f"{NULL.id}-20260105T000000-dddddd")
    store.save(replace(again, queries=None, window=None, readings=None))
    assert typed(store, "show", NULL.id) == 2
    said = capsys.readouterr().err
    assert "E-STORE-9" in said and "aaaaaa" in said and "dddddd" in said


@pytest.mark.slow
def test_named_results_are_removed(store, capsys):
    assert typed(store, "rm", "aaaaaa", "latest", "--yes") == 0
    assert capsys.readouterr().out == "removed 2 results\n" and names(store) == ["bbbbbb"]
    assert not list((store.root / ".incoming").iterdir())


@pytest.mark.slow
def test_filters_remove_what_they_leave(store, capsys):
    assert typed(store, "rm", "--status", "failed", "--yes", "--json") == 0
    assert [i[-6:] for i in json.loads(capsys.readouterr().out)["removed"]] == ["bbbbbb"]
    assert names(store) == ["aaaaaa", "cccccc"]
    assert typed(store, "rm", "--status", "failed", "--yes") == 2
    assert "E-RM-3" in capsys.readouterr().err


@pytest.mark.parametrize(("said", "code", "left"), [("y\n", 0, 2), ("n\n", 1, 3), ("", 1, 3)])
@pytest.mark.slow
def test_it_asks_first(store, monkeypatch, capsys, said, code, left):
    class Terminal(io.StringIO):
        def isatty(self):
            return True

    monkeypatch.setattr("sys.stdin", Terminal(said))
    assert typed(store, "rm", "aaaaaa") == code and len(names(store)) == left
    told = capsys.readouterr()
    assert "Remove this result? [y/N]" in told.err and "aaaaaa" in told.out


@pytest.mark.parametrize(
    ("words", "code"), [((), "E-RM-1"), (("aaaaaa", "--model", "null"), "E-RM-1"), (("aaaaaa",), "E-RM-2")]
)
@pytest.mark.slow
def test_nothing_is_removed_by_a_command_that_is_not_clear(store, capsys, monkeypatch, words, code):
    monkeypatch.setattr("sys.stdin", io.StringIO("y\n"))
    assert typed(store, "rm", *words) == 2
    assert code in capsys.readouterr().err and len(names(store)) == 3


@pytest.mark.slow
def test_a_folder_that_holds_more_than_a_result_is_left_alone(store, capsys):
    (one, *_) = store.results()
    (store.folder(one) / "thesis.txt").write_text("mine")
    assert typed(store, "rm", "aaaaaa", "--yes") == 1
    assert "E-STORE-6" in capsys.readouterr().err and (store.folder(one) / "thesis.txt").exists()
