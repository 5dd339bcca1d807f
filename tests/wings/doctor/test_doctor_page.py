"""docs/how-to/doctor.md: what the doctor says of three shipped boards, and every code it may print."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

import doctor_page
import edgescope
from edgescope.devices import recording, replay
from edgescope.wings.doctor.report import examine
from edgescope.wings.doctor.view import lines
from edgescope.wings.monitor.live import Monitor, Pace

ROOT = Path(__file__).parents[2].parent
PAGE = (ROOT / "docs/how-to/doctor.md").read_text(encoding="utf-8")


@pytest.mark.slow
def test_the_boards_in_the_page_are_what_the_doctor_says_today():
    assert doctor_page.updated(PAGE) == PAGE, "run: python tests/doctor_page.py docs/how-to/doctor.md"


@pytest.mark.slow
def test_a_page_without_marks_is_refused():
    with pytest.raises(ValueError, match="both marks"):
        doctor_page.updated("# no marks")


def test_every_code_of_a_finding_is_explained():
    doctor = Path(edgescope.__file__).parent / "wings/doctor"
    sources = [doctor / f"{n}.py" for n in ("readiness", "unlock")]
    codes = {c for s in sources for c in re.findall(r'"([EWI]-[A-Z]+-\d+)"', s.read_text())}
    assert len(codes) > 20
    listed = set(re.findall(r"[EWI]-[A-Z]+-\d+", PAGE.partition("## Three boards")[0]))
    assert codes <= listed, sorted(codes - listed)


@pytest.mark.process
@pytest.mark.parametrize("board", recording.shipped())
def test_every_shipped_board_is_examined_and_fits_80_columns(board):
    devices = replay.devices(board)
    report = examine(devices, watch_s=0, root=replay.root(devices))
    assert len(report.metrics) > 20
    for m in report.metrics:
        assert (m.value is None) == (m.status != "measured") == bool(m.reason)
    watts = [m for m in report.metrics if m.unit == "W" and m.value is not None]
    assert watts and all(m.scope for m in watts)
    assert not [f for f in (*report.disturbances, *report.missing) if f.code in ("E-MODE-2", "E-PWR-1")]
    shown = [text for text, _ in lines(report, 80)]
    head = " ".join(text for text, style in lines(report, 80) if style == "bold")
    assert "RECORDING, constructed" in head
    assert not re.search(r"~\d|\d us$|0\.00 GHz", "\n".join(shown)), "the recorder's pace, the player's cost"
    assert all(len(text) <= 80 for text in shown if "Try:" not in text)
    assert len(shown) <= 52, "one screen"


@pytest.mark.slow
@pytest.mark.parametrize("board", recording.shipped())
def test_every_shipped_board_is_watched_live(board, tmp_path):
    devices, printed = replay.devices(board), []
    Monitor(devices, Pace(20, 0.2), root=replay.root(devices), proc=tmp_path).paper(printed.append)
    words = dict(word.split("=", 1) for word in printed[-1].split()[1:])
    assert any(name.endswith("_power") for name in words)
    assert any(name.startswith("temperature_") for name in words)
    assert words["throttle"] != "unknown"
