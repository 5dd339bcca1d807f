"""docs/doctor.md: what the doctor says of three shipped boards, and every code it may print."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

import edgescope
from edgescope.cli import doctor_page

ROOT = Path(__file__).parent.parent.parent
PAGE = (ROOT / "docs/doctor.md").read_text(encoding="utf-8")


def test_the_boards_in_the_page_are_what_the_doctor_says_today():
    assert doctor_page.updated(PAGE) == PAGE, "run: python -m edgescope.cli.doctor_page docs/doctor.md"


def test_a_page_without_marks_is_refused():
    with pytest.raises(ValueError, match="both marks"):
        doctor_page.updated("# no marks")


def test_every_code_of_a_finding_is_explained():
    devices = Path(edgescope.__file__).parent / "devices"
    sources = [devices / f"{n}.py" for n in ("readiness", "readiness_board", "unlock")]
    codes = {c for s in sources for c in re.findall(r'"([EWI]-[A-Z]+-\d+)"', s.read_text())}
    assert len(codes) > 20
    listed = set(re.findall(r"[EWI]-[A-Z]+-\d+", PAGE.partition("## Three boards")[0]))
    assert codes <= listed, sorted(codes - listed)
