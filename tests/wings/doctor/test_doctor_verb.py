"""`edgescope doctor` as it is typed: JSON, container flags, and what a recording cannot be asked."""

from __future__ import annotations

import json

import pytest

from edgescope.cli.main import main


@pytest.mark.process
def test_json_is_complete(capsys):
    assert main(["--board", "orin_nano", "doctor", "--json"]) == 0
    page = json.loads(capsys.readouterr().out)
    rails = {m["name"]: m for m in page["metrics"] if m["unit"] == "W"}
    assert rails["vdd_in_power_w"]["scope"] == "module"
    assert rails["vdd_in_power_w"]["refresh_s"] == 0.43
    assert page["noise"] is None
    assert {"machine", "devices", "disturbances", "missing", "trips", "container"} <= set(page)
    for finding in page["disturbances"] + page["missing"]:
        assert set(finding) == {"code", "text", "fix", "evidence"}


@pytest.mark.process
def test_the_container_command_is_one_line_to_copy(capsys):
    assert main(["--board", "orin_nano", "doctor", "--container"]) == 0
    *_, last = capsys.readouterr().out.splitlines()
    assert last.startswith("docker run ") and "--runtime nvidia" in last


@pytest.mark.process
def test_everything_is_listed_with_all(capsys):
    assert main(["--board", "thor", "doctor", "--all"]) == 0
    out = capsys.readouterr().out
    assert "vin_power_w" in out and "carrier" in out
    assert "not measured here, by reason" in out


def test_a_recording_has_no_noise_of_its_own(capsys, tmp_path):
    assert main(["--board", "nano", "doctor", "--noise", "--store", str(tmp_path)]) == 2
    assert "E-NOISE-4" in capsys.readouterr().err


def test_a_rate_that_no_view_needs_is_refused(capsys):
    assert main(["monitor", "--hz", "1000"]) == 2
    assert "E-MON-1" in capsys.readouterr().err


def test_a_board_that_nobody_recorded_is_refused_with_what_to_try(capsys):
    assert main(["--board", "nope", "doctor"]) == 2
    err = " ".join(capsys.readouterr().err.split())
    assert err.startswith("E-REC-1") and "Try: --board agx_orin" in err
