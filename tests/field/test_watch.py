"""Watching from the command line: what is not delivered or not there shows in the exit code, and hints fit the verb."""

from __future__ import annotations

import json

import pytest

from edgescope.cli.main import main
from films import cut, film

pytest.importorskip("torch")
pytest.importorskip("av")

QUICK = ["--features", "motion", "--head", "light_head", "--alarm", "on=0.0,off=0.0"]


@pytest.mark.slow
def test_an_alarm_that_cannot_be_delivered_makes_the_exit_code_1(tmp_path, capsys):
    clip = film(tmp_path / "a.mkv", 32)
    call = ["anomaly", "watch", str(clip), *QUICK, "--json"]
    assert main(call) == 0
    capsys.readouterr()
    nobody = ["--webhook", "http://127.0.0.1:9/alarm", "--spool", str(tmp_path / "spool")]
    assert main([*call, *nobody]) == 1
    summary = json.loads(capsys.readouterr().out.splitlines()[-1])
    assert summary["sinks"][0]["waiting"] >= 1
    assert main([*call[:-1], *nobody, "--plain"]) == 1
    assert "waitings" not in capsys.readouterr().out


def test_a_camera_that_is_not_there_is_said_at_once(capsys):
    assert main(["anomaly", "watch", "/dev/video987", *QUICK, "--seconds", "4s"]) == 1
    said = " ".join(capsys.readouterr().err.split())
    assert "E-VIDEO-2" in said and "/dev/video987 is not there" in said


@pytest.mark.slow
def test_scores_are_the_same_with_and_without_clips(tmp_path, capsys):
    clip = film(tmp_path / "a.mkv", 32, size=(354, 290), noise=30)
    every = []
    for more in ([], ["--clips", str(tmp_path / "clips")], ["--workload-option", "decode=scaled"]):
        main(["anomaly", "watch", str(clip), *QUICK, "--json", *more])
        rows = map(json.loads, capsys.readouterr().out.splitlines())
        every.append([row["score"] for row in rows if row["event"] == "score"])
    assert len(every[0]) == 2 and every[1] == every[0] == every[2]
    assert list((tmp_path / "clips").glob("*.mp4"))


@pytest.mark.parametrize("verb", ["watch", "generate"])
def test_a_damaged_film_names_no_flag_that_the_verb_lacks(tmp_path, capsys, verb):
    broken = cut(film(tmp_path / "a.mkv", 48, noise=6), 0.3)
    call = (
        ["watch", str(broken), *QUICK]
        if verb == "watch"
        else ["generate", str(tmp_path / "s"), "--film", str(broken)]
    )
    assert main(["anomaly", *call]) != 0
    said = "".join(capsys.readouterr())
    assert "E-VIDEO-1" in said and "source=" not in said


def test_a_folder_that_is_missing_is_no_full_disk(tmp_path, capsys):
    assert (
        main(["anomaly", "extract", str(tmp_path / "none"), str(tmp_path / "out"), "--features", "motion"])
        != 0
    )
    assert "free some space" not in capsys.readouterr().err
