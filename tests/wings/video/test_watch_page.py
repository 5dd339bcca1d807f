"""The report of a session of watching, in every format."""

import pytest

from edgescope.report import data, html
from edgescope.wings.video import page as watch

SUMMARY = {
    "source": "rtsp://host/door",
    "live": True,
    "seconds": 100.0,
    "stream_s": 99.0,
    "frames": 2500,
    "fps": 25.0,
    "dropped_by_source": 10,
    "dropped_by_queues": 16,
    "reconnects": 1,
    "failed_units": 2,
    "first_error": "E-VIDEO-2: silent",
    "snippets": 150,
    "unscored_snippets": 1,
    "alarms": 1,
    "suppressed": 3,
    "frame_age_p50_s": 0.2,
    "frame_age_p99_s": 0.41,
    "rule": "on=0.5",
    "sinks": [{"webhook": "http://host/x", "sent": 1, "waiting": 2, "refused": 0, "problem": "refused"}],
}
ALARM = {
    "id": "ab-1",
    "source": "rtsp://host/door",
    "camera": 0,
    "start_s": 12.0,
    "raised_s": 13.0,
    "end_s": 15.5,
    "at": "2026-01-02T03:04:05.000+00:00",
    "delay_s": 1.25,
    "peak": 0.93,
    "peak_s": 14.0,
    "clip": "clips/ab-1.mp4",
}


@pytest.mark.parametrize("render", [html.render, data.markdown])
def test_every_alarm_is_there_and_what_was_lost(render):
    text = render(watch.document(SUMMARY, [ALARM]))
    for words in (
        "ab-1",
        "15.5",
        "0.93",
        "1.25",
        "clips/ab-1.mp4",
        "26 of 2526 frames were dropped",
        "2 units failed",
    ):
        assert words in text, words
    assert "3 alarms suppressed" in text and "refused" in text and "1 snippet had features" in text


def test_a_program_reads_it_too():
    page = watch.document(SUMMARY, [ALARM])
    assert '"alarms"' in data.json_text(page) and "ab-1" in data.csv_file(page)


def test_an_alarm_that_is_on_has_no_end_and_a_film_no_ages():
    quiet = {
        **SUMMARY,
        "alarms": 0,
        "frame_age_p99_s": None,
        "sinks": [],
        "dropped_by_source": 0,
        "suppressed": 0,
    }
    quiet |= {"dropped_by_queues": 0, "failed_units": 0, "unscored_snippets": 0}
    assert watch.problems(quiet) == []
    text = data.markdown(watch.document(quiet, []))
    assert "no alarm was raised" in text
    assert "and is on" in watch.line({**ALARM, "end_s": None}) and "to 15.5 s" in watch.line(ALARM)
