"""How a Result begins and ends, and what is added to it afterwards."""

import re
from dataclasses import replace
from datetime import datetime, timezone

import pytest

from edgescope.errors import Message
from edgescope.records import Machine, Result, Status, Trial, Trust, Verdict
from making import result

TRIAL = Trial(model="null", backend="null")
WHERE = Machine({"cpu": "one"}, {})
FIRST, SECOND = Message("E-X-1", "first"), Message("E-X-2", "second")


def test_what_has_begun_has_a_name_a_moment_and_no_figures():
    at = datetime(2026, 1, 2, 3, 4, 5, tzinfo=timezone.utc)
    one, other = (Result.begun(TRIAL, WHERE, at=at) for _ in range(2))
    assert one.started_at == "2026-01-02T03:04:05.000+00:00" and one.id != other.id
    assert re.fullmatch(rf"{TRIAL.id}-20260102T030405-[0-9a-f]{{6}}", one.id)
    assert (one.status, one.reason, one.metrics, one.machine) == (Status.FAILED, None, {}, WHERE)
    skipped = Result.begun(TRIAL, WHERE, Status.SKIPPED, FIRST)
    assert (skipped.status, skipped.reason) == (Status.SKIPPED, FIRST)
    assert datetime.now(timezone.utc) >= datetime.fromisoformat(skipped.started_at) > at


def test_an_end_keeps_its_reason_unless_there_is_another():
    late = result(TRIAL, status=Status.TIMEOUT, reason=FIRST)
    assert (late.ended(Status.CANCELLED).status, late.ended(Status.CANCELLED).reason) == (
        Status.CANCELLED,
        FIRST,
    )
    assert late.ended(Status.OOM, SECOND).reason == SECOND


def test_warnings_are_added_and_none_changes_nothing():
    one = result(TRIAL, warnings=(FIRST,))
    assert one.warned(SECOND).warnings == (FIRST, SECOND) and one.warned() is one


@pytest.mark.parametrize("status", list(Status))
def test_what_is_spoiled_afterwards_has_failed_and_what_had_failed_is_warned_of(status):
    before = result(TRIAL, status=status, reason=FIRST, verdict=Verdict(Trust.CLEAN, ("e",)))
    found = before.spoiled(SECOND)
    assert found.verdict == Verdict(Trust.UNKNOWN, (str(SECOND), "e"))
    disturbed = replace(before, verdict=Verdict(Trust.DISTURBED, ("e",)))
    assert disturbed.spoiled(SECOND).verdict == disturbed.verdict
    if status in (Status.OK, Status.UNSTABLE):
        assert (found.status, found.reason, found.warnings) == (Status.FAILED, SECOND, before.warnings)
    else:
        assert (found.status, found.reason, found.warnings[-1]) == (status, FIRST, SECOND)
