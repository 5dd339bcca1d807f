"""The checks of what the board is and of its rails, on a board made of files and on the recorded ones."""

import json

import kit_board
import pytest

from edgescope.devices import recording
from edgescope.wings.verify_board.check import Outcome, Status
from edgescope.wings.verify_board.checks import rails
from edgescope.wings.verify_board.site import Here, Said

pytestmark = pytest.mark.process

CHIP = "sys/bus/i2c/drivers/ina3221/1-0040/hwmon/hwmon1"


@pytest.fixture
def root(tmp_path):
    return kit_board.board(tmp_path)


@pytest.fixture(autouse=True)
def quick(monkeypatch):
    """Shorter stretches."""
    monkeypatch.setattr(rails, "RAILS_S", 0.6)


def test_the_board_says_what_it_is_and_names_nobody(root):
    found = rails.board(Here(root))
    assert found.status is Status.HOLDS
    assert "p3767-0005" in found.says and "JetPack 6.2" in found.says
    assert str(found.evidence["title"]).startswith("Jetson Orin Nano 8GB")
    text = json.dumps(found.evidence)
    assert not [secret for secret in kit_board.SECRETS if secret in text]


def test_a_board_that_the_table_lacks_does_not_hold(root):
    (root / "proc/device-tree/compatible").write_text("nvidia,p9999-0000\0nvidia,tegra999\0")
    (root / "proc/device-tree/model").write_text("NVIDIA Jetson Future\0")
    found = rails.board(Here(root))
    assert found.status is Status.FAILS and "boards.toml" in found.says


def test_a_machine_that_is_no_jetson_is_unsupported(tmp_path):
    (tmp_path / "proc").mkdir()
    for name in ("stat", "meminfo", "cpuinfo"):
        (tmp_path / "proc" / name).symlink_to(f"/proc/{name}")
    for check in (rails.board, rails.rails, rails.rails_sum, rails.rails_tegrastats):
        found = check(Here(tmp_path))
        assert found.status is Status.UNSUPPORTED and "not a Jetson" in found.says


@pytest.mark.process
def test_rails_hold_where_the_board_has_those_of_its_table(root):
    found = rails.rails(Here(root))
    assert found.status is Status.HOLDS, found.says
    vdd_in = found.evidence["rails"]["vdd_in"]
    assert vdd_in["mean_w"] == pytest.approx(4.92 * 1.01) and vdd_in["readings"] > 3
    assert found.evidence["total_w"] == pytest.approx(4.92 * 1.01)


@pytest.mark.process
@pytest.mark.parametrize(
    ("label", "wrong"),
    [("VDD_CORE", "VDD_CORE is not in boards.toml"), ("VDD_SOC", "VDD_SOC is not"), ("NC", "no total here")],
)
def test_rails_do_not_hold_where_a_label_is_another(root, label, wrong):
    """A new label, one that is there twice, and a total that is not connected."""
    (root / CHIP / "in1_label").write_text(f"{label}\n")
    found = rails.rails(Here(root))
    assert found.status is Status.FAILS
    assert ("VDD_IN" in found.says) and (wrong in found.says or label == "VDD_SOC")


@pytest.mark.process
def test_rails_that_add_up_to_more_than_what_feeds_them_do_not_hold(root):
    assert rails.rails_sum(Here(root)).status is Status.HOLDS
    (root / CHIP / "curr2_input").write_text("900\n")
    found = rails.rails_sum(Here(root))
    assert found.status is Status.FAILS
    assert found.evidence["VDD_IN"]["parts_w"] == pytest.approx(4.912 * 0.9 + 4.904 * 0.347)


@pytest.mark.process
@pytest.mark.parametrize(
    ("watts", "status", "says"),
    [
        (kit_board.RAILS, Status.HOLDS, "3 rails within"),
        ({**kit_board.RAILS, "VDD_IN": 6200}, Status.FAILS, "VDD_IN: 4.97 W in sysfs, 6.20 W"),
        ({"VDD_IN": 4969, "VDD_SOC": 1702}, Status.FAILS, "sysfs shows VDD_CPU_GPU_CV"),
        ({**kit_board.RAILS, "VDD_NEW": 9}, Status.FAILS, "tegrastats shows VDD_NEW"),
        ({}, Status.FAILS, "printed no rail"),
    ],
)
def test_sysfs_and_tegrastats_are_compared_rail_by_rail(tmp_path, monkeypatch, watts, status, says):
    root = kit_board.board(tmp_path, watts)
    monkeypatch.setenv("PATH", kit_board.environment(tmp_path, root)["PATH"])
    found = rails.rails_tegrastats(Here(root))
    assert found.status is status and says in found.says, found


@pytest.mark.slow
@pytest.mark.parametrize("board", recording.shipped())
def test_every_recorded_board_is_known_and_so_are_its_rails(board, monkeypatch):
    monkeypatch.setenv("EDGESCOPE_BOARD", board)
    site = Here()
    assert rails.board(site).status is Status.HOLDS
    assert rails.rails(site).status is Status.HOLDS
    assert rails.rails_sum(site).status in (Status.HOLDS, Status.UNSUPPORTED)


def test_what_a_program_printed_last_is_told():
    assert Said(1, ((0, "a"), (1, " "), (2, "b ")), 0.1).last == "a | b"
    assert Outcome.of({"status": "holds", "says": "s", "evidence": {}}) == Outcome(Status.HOLDS, "s")
