"""The file to send: written whole, read back, refused where it would name somebody; and what is made of many."""

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from edgescope.errors import SettingError, StoreError, UsageError
from edgescope.report import terminal
from edgescope.wings.record.lends import Names
from edgescope.wings.verify_board import page
from edgescope.wings.verify_board.board_file import BoardFile, Verified, read
from edgescope.wings.verify_board.check import Check, Outcome, Status, checks, chosen

RAILS = Check("rails", "every rail", 60.0, "rails:rails")
CAMERA = Check("camera", "a camera", 60.0, "video:camera")
NOBODY = Names()
HOLDS = Verified(RAILS, Outcome(Status.HOLDS, "3 rails", {"vdd_in_w": 4.97}), 6.25)
NONE = Verified(CAMERA, Outcome(Status.UNSUPPORTED, "no /dev/video0 on annas-robot"), 0.1)


def made(*done, board="Jetson Orin Nano", reached="here", names=NOBODY):
    return BoardFile("1.0", "abc", "2026-11-29", reached, board, 61.0, done, ("nvpmodel 25W (1)",), (), names)


def test_what_is_written_is_read_back(tmp_path):
    made(HOLDS, NONE).write(tmp_path / "b.json")
    found = read(tmp_path / "b.json")
    assert (found.board, found.made, found.restored, found.seconds) == (
        *("Jetson Orin Nano", "2026-11-29", ("nvpmodel 25W (1)",), 61.0),
    )
    assert [(v.check.name, v.check.path, v.outcome, v.seconds) for v in found.checks] == [
        ("rails", "every rail", HOLDS.outcome, 6.25),
        ("camera", "a camera", NONE.outcome, 0.1),
    ]


def test_its_texts_name_nobody(tmp_path):
    names = Names({"annas-robot": "host"})
    made(NONE, board="a board of annas-robot", names=names).write(tmp_path / "b.json")
    data = json.loads((tmp_path / "b.json").read_text())
    assert data["checks"]["camera"]["says"] == "no /dev/video0 on <host>"
    assert data["board"] == "a board of <host>"


def test_what_is_no_number_is_none_in_it(tmp_path):
    told = Verified(RAILS, Outcome(Status.HOLDS, "", {"a_w": float("nan"), "b": [float("inf"), 1.5]}))
    made(told).write(tmp_path / "b.json")
    assert read(tmp_path / "b.json").checks[0].outcome.evidence == {"a_w": None, "b": [None, 1.5]}


def test_a_name_that_is_left_keeps_the_file_from_being_written(tmp_path):
    """Keys are not changed: so a word in one of them is found."""
    told = Verified(RAILS, Outcome(Status.HOLDS, "", {"annas-robot": 1}))
    with pytest.raises(SettingError) as caught:
        made(told, names=Names({"annas-robot": "host"})).write(tmp_path / "b.json")
    assert caught.value.code == "E-BOARD-2" and "host" in caught.value.evidence
    assert not (tmp_path / "b.json").exists()


@given(st.recursive(st.none() | st.text(max_size=5) | st.integers(), lambda x: st.lists(x) | st.dictionaries(
    st.sampled_from(["schema", "checks", "board", "made", "a"]), x), max_leaves=6))  # fmt: skip
def test_any_other_file_is_refused(tmp_path_factory, data):
    path = tmp_path_factory.mktemp("file") / "b.json"
    path.write_text(json.dumps(data))
    with pytest.raises(StoreError) as caught:
        read(path)
    assert caught.value.code == "E-BOARD-3"


def test_the_screen_says_how_many_hold_and_where_the_file_is():
    lines = terminal.lines(page.document(made(HOLDS, NONE), "b.json"), 80, limit=None)
    text = "\n".join("".join(word for word, _ in line) for line in lines)
    assert "1 holds, 1 unsupported, in 61 s" in text
    assert "b.json" in text and "put back: nvpmodel 25W (1)" in text
    assert max(map(len, text.splitlines())) <= 80


def test_what_does_not_hold_comes_first_and_a_reason_of_several_checks_is_said_once():
    gone = Outcome(Status.UNSUPPORTED, "not a Jetson: neither /a nor /b (in a container)")
    fails = Verified(CAMERA, Outcome(Status.FAILS, "2 of 30 frames"))
    two = [Verified(Check(name, "p", 1.0, ""), gone) for name in ("one", "two")]
    shown = page.document(made(HOLDS, *two, fails), "b.json")
    lines = ["".join(word for word, _ in line) for line in terminal.lines(shown, 80, limit=None)]
    assert [line for line in lines if ": " in line][:3] == [
        "does not hold: camera: 2 of 30 frames",
        "holds: rails: 3 rails",
        "unsupported: not a Jetson (one, two)",
    ]
    assert "neither /a nor /b" in str(terminal.lines(shown, 200, verbose=True, limit=None))


def test_a_setting_that_is_left_changed_is_said():
    one = BoardFile("1", "c", "d", "here", "b", 1.0, (), (), ("nvpmodel 15W (0)",))
    lines = terminal.lines(page.document(one, "b.json"), 80, limit=None)
    assert any("NOT put back: nvpmodel 15W (0)" in "".join(w for w, _ in line) for line in lines)


def test_the_table_says_where_each_path_held_and_a_recording_counts_nowhere():
    files = {"orin.json": made(HOLDS, NONE), "played.json": made(HOLDS, reached="recording")}
    rails, camera = page.where(files, (RAILS, CAMERA))
    assert rails == ("`rails`: every rail", "Jetson Orin Nano (2026-11-29, orin.json)", "", "")
    assert camera == ("`camera`: a camera", page.NOWHERE, "", "Jetson Orin Nano (2026-11-29, orin.json)")
    assert list(page.where({"h.json": made(HOLDS, board="Xeon | H200")}, (RAILS,))) == [
        ("`rails`: every rail", "Xeon, H200 (2026-11-29, h.json)", "", "")
    ]  # a bar ends a cell of the table
    assert page.jetsons(files.values()) == "1 Jetson verified: Jetson Orin Nano."
    assert page.jetsons([made(HOLDS, board="Xeon")]) == "No Jetson has been verified by such a file yet."


def test_checks_are_run_in_the_order_of_the_table_and_a_name_that_is_none_is_refused():
    names = list(checks())
    assert [check.name for check in chosen(())] == names
    assert [check.name for check in chosen((names[3], names[1]))] == [names[1], names[3]]
    with pytest.raises(UsageError) as caught:
        chosen(("rials",))
    assert caught.value.code == "E-BOARD-1" and caught.value.fix == "--checks rails"
