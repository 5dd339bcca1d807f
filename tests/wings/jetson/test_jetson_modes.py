"""Power modes on a constructed board with real programs: set, read back, probed, restored; never a yes to a reboot."""

import json

import pytest

from edgescope import registry
from edgescope.devices import clocks
from edgescope.devices.base import Row, Undo
from edgescope.devices.kernel_files import is_absent
from edgescope.errors import DeviceError, SettingError, UnavailableError, UnsupportedError, UsageError
from edgescope.modes import catalog, cpu, enter, privileged
from edgescope.modes.catalog import Together, listing, problems, without
from edgescope.modes.cpu import Affinity, Governor
from edgescope.wings.jetson import modes, nvpmodel
from edgescope.wings.jetson.device import JetsonDevice
from fake_jetson import CPU, GPU, ORIN_NANO, Told, board, read
from refusing import refused

POLICY = f"{CPU}/cpufreq/policy0"


class Jetson(JetsonDevice):
    """A board that no device tree names."""

    def present(self):
        return ""


@pytest.fixture(autouse=True)
def quick(tmp_path, monkeypatch):
    """A state folder of this test's own; the probe reads a file that stands still, so it may be short."""
    monkeypatch.setenv("EDGESCOPE_STATE", str(tmp_path / "state"))
    monkeypatch.setattr(enter, "_JOURNALS", {})
    real = clocks.probe
    monkeypatch.setattr(clocks, "probe", lambda root: real(root, 0.03))


@pytest.fixture
def root(tmp_path):
    return board(tmp_path / "root")


def find(root, name):
    return catalog.find(name, {"jetson": Jetson(root)})


def calls(root):
    return [c for c in read(root, "calls").splitlines() if not c.endswith("-q")]


@pytest.mark.process
def test_a_mode_is_set_seen_in_effect_and_restored_by_its_name(root, capsys):
    with enter.entered(find(root, "15W")) as mode:
        assert read(root, "live") == "0" and read(root, f"{POLICY}/scaling_max_freq") == "1497600"
        assert mode.problem() == ""
        assert mode.evidence() == (
            "nvpmodel 15W (0); CPUs online 0-5; DVFS on; "
            "policy0 1498 MHz busy of 1498 (the hardware's, cpuinfo_cur_freq)"
        )
        assert enter.folder().joinpath(enter.FILE).exists()
    assert read(root, "live") == "1" and read(root, f"{POLICY}/scaling_max_freq") == "1344000"
    assert calls(root) == ["nvpmodel -m 0", "nvpmodel -m 1"]
    assert "I-RST: restored: nvpmodel 25W (1)." in " ".join(capsys.readouterr().err.split())
    assert not enter.folder().joinpath(enter.FILE).exists()


@pytest.mark.parametrize("text", ["", "<<<", "\0\xff", "< POWER_MODEL ID=x NAME=y >"])
def test_a_file_without_modes_takes_no_other_setting_along(root, text):
    (root / "etc/nvpmodel/board.conf").write_text(text)
    assert set(modes.modes(root)) == {"jetson_clocks"}
    assert find(root, "jetson_clocks").name == "jetson_clocks"
    assert find(root, "cpus=0+governor=performance").name == "cpus=0+governor=performance"
    with pytest.raises(UsageError, match=r'E-MODE-1: mode "15W" .*\(available: jetson_clocks'):
        find(root, "15W")
    assert "E-NVP-1" in without({"jetson": Jetson(root)})


@pytest.mark.process
def test_a_line_of_the_file_that_is_not_understood_is_told_and_the_modes_are_there(root):
    path = root / "etc/nvpmodel/board.conf"
    path.write_text(
        path.read_text() + "GPU MAX_FREQ 1 2 3\n< POWER_MODEL ID=9 NAME=odd >\nwhat is this now\n"
    )
    names = [row.name for row in listing({"jetson": Jetson(root)}) if row.id is not None]
    assert names == [*(t.name for t in ORIN_NANO), "odd"]
    (told,) = problems({"jetson": Jetson(root)})
    assert told.startswith("/etc/nvpmodel.conf, line ") and told.endswith("4 words where 3 are due")


class Broken:
    """A device whose driver's library raises what it likes."""

    def __init__(self, error):
        self.error = error

    def present(self):
        return ""

    def modes(self):
        raise self.error


@pytest.mark.process
@pytest.mark.parametrize("error", [DeviceError("E-X-1", "no list"), OSError("bus"), RuntimeError("driver")])
@pytest.mark.parametrize("first", [True, False])
def test_a_device_that_fails_takes_no_other_devices_modes_along(root, error, first):
    both = {"a": Broken(error), "jetson": Jetson(root)}
    devices = both if first else dict(reversed(both.items()))
    for name in ("15W", "cpus=0", "15W+jetson_clocks"):
        assert catalog.find(name, devices).name == name
    assert {row.name for row in listing(devices)} >= {"15W", "jetson_clocks"}
    with pytest.raises(UsageError, match=r"no list|bus|driver"):
        catalog.find("16W", devices)
    assert len(problems(devices)) == 1


@pytest.mark.process
def test_ids_belong_to_the_board_names_are_what_is_asked(tmp_path):
    # MAXN_SUPER is 2 on an Orin Nano and 0 on an Orin NX (LineageOS/android_device_nvidia_concord)
    nx = (Told(0, "MAXN_SUPER", 6, 6, -1, -1, 240), Told(1, "10W", 6, 6, 1190400, 612000000, 240))
    for name, told, ident in (("nano", ORIN_NANO, "2"), ("nx", nx, "0")):
        root = board(tmp_path / name, told)
        with enter.entered(find(root, "MAXN_SUPER")):
            assert read(root, "live") == ident


@pytest.mark.process
def test_the_present_mode_is_verified_and_nothing_is_set(root):
    with enter.entered(find(root, "25W")):
        pass
    assert calls(root) == []


@pytest.mark.process
def test_a_mode_that_needs_a_reboot_is_not_even_tried(root):
    error = refused(
        find(root, "7W"), SettingError, r"E-MODE-2: mode change not in effect: requested 7W \(3\)"
    )
    assert "TPC_PG_MASK 240 -> 252 needs a reboot" in str(error) and "sudo nvpmodel -m 3" in error.fix
    assert error.exit_code == 4
    assert calls(root) == [] and read(root, "live") == "1"


@pytest.mark.process
def test_a_reboot_that_nobody_foresaw_is_not_agreed_to_and_nothing_is_measured(root):
    (root / "mask").write_text("7")  # the driver runs with another mask than the file says
    error = refused(find(root, "15W"), SettingError, r"E-MODE-2.*reboot")
    assert "requested mode 0" in str(error) and "Reboot required" not in error.fix
    assert not (root / "rebooted").exists()
    assert calls(root) == ["nvpmodel -m 0"] and enter.left_behind() == []


@pytest.mark.process
def test_a_program_that_ends_with_0_and_does_nothing_is_seen_through(root):
    (root / "ignores").touch()
    refused(find(root, "15W"), SettingError, r"E-MODE-2.*requested mode 0, nvpmodel -q says 25W \(1\)")


@pytest.mark.process
def test_a_mode_whose_limits_the_kernel_does_not_hold_is_refused_and_restored(root):
    (root / "half").touch()  # nvpmodel says 15W, the clocks stay at 25W's
    error = refused(find(root, "15W"), SettingError, "E-MODE-2")
    assert "the limit of CPU_A78_0 is 1344000, the mode has 1497600" in error.evidence
    assert "the limit of GPU is 918000000, the mode has 612000000" in error.evidence
    assert read(root, "live") == "1"


@pytest.mark.process
def test_a_limit_rounded_to_the_clock_table_is_in_effect_one_further_off_is_not(root):
    path = root / f"{POLICY}/scaling_max_freq"
    mode = find(root, "25W")
    path.write_text("1344000")
    (root / f"{POLICY}/scaling_available_frequencies").write_text("729600 1267200 1420800 1497600")
    for rounded in ("1267200", "1420800"):
        path.write_text(rounded)
        assert mode.problem() == ""
    path.write_text("1497600")
    assert "the limit of CPU_A78_0 is 1497600" in mode.problem()


@pytest.mark.process
def test_cores_that_stayed_off_are_seen(root):
    (root / f"{CPU}/online").write_text("0-3\n")
    assert "CPUs 0-3 are online, the mode has 0-5" in find(root, "25W").problem()


@pytest.mark.process
def test_a_clock_latched_low_by_the_hardware_is_not_the_mode(root):
    # as reported of a Jetson Thor after an over-current event: the request stands, the hardware runs at 649 MHz
    (root / f"{POLICY}/scaling_cur_freq").write_text("1497600")
    (root / f"{POLICY}/cpuinfo_cur_freq").write_text("649000")
    (root / "latched").touch()
    refused(find(root, "15W"), SettingError, "runs at 649 MHz when busy, its limit is 1498 MHz")
    assert read(root, "live") == "1"


def test_the_evidence_says_when_the_clock_is_only_the_request_in_whatever_process_it_is_asked(root):
    (root / f"{POLICY}/cpuinfo_cur_freq").rename(root / f"{POLICY}/scaling_cur_freq")
    for name in ("25W", "jetson_clocks"):
        said = find(root, name).evidence()  # never entered here, as in the process that measures
        assert "policy0 1344 MHz busy of 1344 (the kernel's request, scaling_cur_freq; " in said


@pytest.mark.process
def test_jetson_clocks_holds_the_clocks_of_the_mode_and_gives_them_back(root):
    with enter.entered(find(root, "jetson_clocks+15W")) as mode:
        assert mode.name == "15W+jetson_clocks"
        assert read(root, f"{POLICY}/scaling_min_freq") == "1497600"
        assert mode.problem() == "" and "DVFS off" in mode.evidence()
    assert read(root, f"{POLICY}/scaling_min_freq") == "729600" and read(root, "live") == "1"
    assert [c.split("/")[0].strip() for c in calls(root)][:2] == ["nvpmodel -m 0", "jetson_clocks --store"]
    assert calls(root)[-1] == "nvpmodel -m 1" and calls(root)[-2].startswith("jetson_clocks --restore")


@pytest.mark.process
def test_clocks_that_are_held_already_are_not_stored_over(root):
    held = enter.DiskJournal()
    held.note("another process", Undo("clocks", ("write", "x", "y"), str(root)))
    refused(find(root, "jetson_clocks"), SettingError, "E-MODE-3")
    assert calls(root) == []
    held._drop()
    (enter.folder() / enter.FILE).unlink()
    with enter.entered(find(root, "jetson_clocks")):
        with enter.entered(find(root, "jetson_clocks")):
            pass
        assert read(root, f"{POLICY}/scaling_min_freq") == "1344000"
    assert read(root, f"{POLICY}/scaling_min_freq") == "729600"


@pytest.mark.process
def test_a_store_that_fails_leaves_the_modes_free(root):
    (root / "usr/bin/jetson_clocks").write_text("#!/bin/sh\nexit 3\n")
    refused(find(root, "jetson_clocks"), SettingError, "E-MODE-4")
    enter.DiskJournal(do=lambda words, where: "").note("b", Undo("b", ("x", "2")))


@pytest.mark.process
def test_jetson_clocks_without_effect_is_refused(root):
    (root / "usr/bin/jetson_clocks").write_text('#!/bin/sh\n[ "$1" = --store ] && echo > "$2"\nexit 0\n')
    refused(find(root, "jetson_clocks"), SettingError, r"E-MODE-2.*still float")


def test_an_unknown_mode_lists_what_there_is(root):
    with pytest.raises(UsageError, match='E-MODE-1: mode "MAXN" ') as caught:
        find(root, "MAXN")
    assert "15W(0), 25W(1), MAXN_SUPER(2), 7W(3), jetson_clocks, cpus=..." in caught.value.evidence


@pytest.mark.parametrize("name", ["15W+25W", "cpus=0+cpus=1"])
def test_two_of_one_kind_are_refused(root, name):
    with pytest.raises(UsageError, match="E-MODE-10"):
        find(root, name)


def test_two_custom_modes_of_one_name_are_told_apart_by_their_ids(tmp_path):
    twins = (Told(5, "mine", 6, 6), Told(9, "mine", 6, 6, 1344000))
    assert list(modes.modes(board(tmp_path, twins, now=5)))[:2] == ["mine(5)", "mine(9)"]


def test_without_the_program_nothing_is_noted_or_left_behind(root):
    (root / "usr/sbin/nvpmodel").unlink()  # a container, or a recording
    error = refused(find(root, "15W"), SettingError, "E-MODE-4")
    assert "nvpmodel -m 0" in str(error)
    assert enter.left_behind() == [] and read(root, "live") == "1"


@pytest.mark.process
def test_without_what_checks_a_power_mode_none_is_set_and_a_note_stays(root, tmp_path, monkeypatch):
    monkeypatch.setitem(registry.CHECKS, "nvpmodel", "edgescope.wings.taken_out.modes")
    with pytest.raises(UnavailableError, match="E-NAME-2"):
        privileged.act(("nvpmodel", "-m", "0"), root)
    (tmp_path / "state").mkdir()
    undo = {"what": "nvpmodel 15W (0)", "request": ["nvpmodel", "-m", "0"], "root": str(root)}
    (tmp_path / "state" / enter.FILE).write_text(json.dumps({"owner": "25W", "pid": 1, **undo}) + "\n")
    with pytest.raises(SettingError, match=r"E-MODE-5.*E-NAME-2"):
        enter.journal().recover()
    assert enter.left_behind() == ["nvpmodel 15W (0)"] and calls(root) == []
    monkeypatch.undo()
    monkeypatch.setenv("EDGESCOPE_STATE", str(tmp_path / "state"))
    assert enter.journal().recover() and enter.left_behind() == [] and read(root, "live") == "0"


def test_an_unknown_present_mode_is_not_left(root):
    (root / "usr/sbin/nvpmodel").unlink()
    (root / "var/lib/nvpmodel/status").unlink()
    refused(find(root, "15W"), UnsupportedError, "could not be put back")


def test_a_machine_without_nvpmodel_has_no_power_modes(tmp_path):
    assert modes.modes(tmp_path) == {}
    assert is_absent(clocks.dvfs(tmp_path)) and clocks.probe(tmp_path) == (
        "",
        "clocks not probed (no cpufreq)",
    )


@pytest.mark.process
def test_the_table_says_cores_clocks_and_what_needs_a_reboot(root):
    rows = {row.name: row for row in listing({"jetson": Jetson(root)})}
    assert rows["25W"].now and rows["25W"].default and rows["25W"].change == "live"
    assert (rows["15W"].cores, rows["15W"].cpu_max_hz, rows["15W"].gpu_max_hz) == (
        tuple(range(6)),
        1497600000,
        612000000,
    )
    assert rows["MAXN_SUPER"].cpu_max_hz is None and rows["MAXN_SUPER"].change == "live"
    assert rows["7W"].change == "needs a reboot" and rows["7W"].cores == (0, 1, 2, 3)
    assert "quota=..." in rows and rows["jetson_clocks"].id is None
    assert read(root, "calls") == "nvpmodel -q", "it is asked once for all rows"


@pytest.mark.process
def test_the_gpu_limit_is_read_where_this_kernel_has_it(root):
    (root / f"{GPU}/max_freq").write_text("306000000")
    assert "the limit of GPU is 306000000, the mode has 918000000" in find(root, "25W").problem()


class Noted:
    """A journal that keeps what it was told."""

    def __init__(self):
        self.notes = []

    def note(self, owner, undo):
        self.notes.append((owner, undo.request))


def governors(tmp_path, *names):
    for n, name in enumerate(names):
        folder = tmp_path / f"{CPU}/cpufreq/policy{n}"
        folder.mkdir(parents=True)
        (folder / "scaling_governor").write_text(f"{name}\n")
    return tmp_path


def test_a_governor_is_set_on_every_policy_and_each_is_noted_before(tmp_path):
    mode, book = Governor("performance", governors(tmp_path, "schedutil", "performance")), Noted()
    assert mode.problem() == "policy0 has governor schedutil"
    assert mode.evidence() == "policy0 schedutil, policy1 performance"
    mode.enter(book)
    assert [request[2] for _, request in book.notes] == ["schedutil", "performance"]
    assert mode.problem() == "" and mode.evidence() == "policy0 performance, policy1 performance"


def test_a_governor_without_effect_or_without_a_driver_is_told(tmp_path, monkeypatch):
    mode = Governor("performance", tmp_path)
    assert mode.problem() == "no cpufreq" and mode.evidence() == ""
    refused(mode, UnsupportedError, "E-MODE-9")
    governors(tmp_path, "schedutil")
    monkeypatch.setattr(cpu, "act", lambda words, root: "")
    refused(mode, SettingError, "E-MODE-2")


MODE = nvpmodel.PowerMode(2, "15W", {"CPU_ONLINE": {"CORE_0": "1"}})


@pytest.mark.parametrize(
    ("now", "problem", "change"),
    [
        ({"absent": "no status"}, "no status", "not known"),
        (nvpmodel.PowerMode(1, "25W"), "requested 15W (2), nvpmodel says 25W (1)", "live"),
        (MODE, "", "live"),
    ],
)
def test_what_a_power_mode_is_told_of_the_present_one(tmp_path, monkeypatch, now, problem, change):
    mode = modes.NvpMode(MODE, nvpmodel.Conf((MODE,), {}), tmp_path)
    monkeypatch.setattr(modes.NvpMode, "now", lambda mode: now)
    assert (mode.problem(), mode.change()[0], mode.name) == (problem, change, "15W")


def test_without_cpufreq_it_is_not_known_whether_clocks_are_held(tmp_path):
    held = modes.JetsonClocks(tmp_path)
    assert held.problem() == "whether the clocks are held is not known: no cpufreq"
    assert held.evidence().startswith("DVFS not known (no cpufreq)")


@pytest.mark.parametrize(
    ("now", "differ"),
    [("900", False), ("1000", False), ("1100", False), ("800", True), ("1200", True), (None, False)],
)
def test_a_limit_may_be_rounded_to_its_neighbours_in_the_table(tmp_path, now, differ):
    capped = nvpmodel.PowerMode(2, "15W", {"GPU": {"MAX_FREQ": "1000"}, "EMC": {"MAX_FREQ": "5"}})
    paths = {"MAX_FREQ": "/limit", "FREQ_TABLE": "/table"}
    (tmp_path / "table").write_text("800 900 1100 1200")
    if now is not None:
        (tmp_path / "limit").write_text(now)
    conf = nvpmodel.Conf((capped,), {"GPU": paths, "EMC": {"MAX_FREQ": "/table"}})
    assert bool(modes.differences(conf, capped, tmp_path)) is differ


def test_the_upstream_kernels_files_stand_in_for_nvidias(tmp_path):
    capped = nvpmodel.PowerMode(2, "15W", {"GPU": {"MAX_FREQ": "1000"}})
    (tmp_path / "knext").write_text("900")
    (tmp_path / "table").write_text("900 1000")
    paths = {"MAX_FREQ": "/none", "MAX_FREQ_KNEXT": "/knext", "FREQ_TABLE_KNEXT": "/table"}
    (found,) = modes.differences(nvpmodel.Conf((capped,), {"GPU": paths}), capped, tmp_path)
    assert "900" in found and "1000" in found


@pytest.mark.parametrize(
    ("answer", "output", "says"),
    [
        ("NV Power Mode: 25W\n1\n", "x" * 300, "requested mode 2, nvpmodel -q says 25W (1): " + "x" * 200),
        ("", "a  b", f"requested mode 2, {nvpmodel.STATUS} says 1: a b"),
        (
            "NV Power Mode: 25W\n1\n",
            "REBOOT required",
            "requested mode 2, nvpmodel -q says 25W (1): needs a reboot",
        ),
        (
            "NV Power Mode: 15W\n2\n",
            "Reboot, please",
            "requested mode 2, nvpmodel -q says 15W (2): needs a reboot",
        ),
        ("NV Power Mode: 15W\n2\n", "done", None),
    ],
)
def test_a_mode_that_was_set_is_read_back(monkeypatch, tmp_path, answer, output, says):
    monkeypatch.setattr(modes, "output", lambda root: answer)
    monkeypatch.setattr(nvpmodel, "status", lambda root: 1)
    if says is None:
        modes.read_back(("nvpmodel", "-m", "2"), output, tmp_path)
        return
    with pytest.raises(SettingError, match="E-MODE-2") as caught:
        modes.read_back(("nvpmodel", "-m", "2"), output, tmp_path)
    assert caught.value.evidence == says
    fix = "sudo nvpmodel -m 2, reboot, and the same command again" if "reboot" in says else ""
    assert caught.value.fix == fix


W15 = nvpmodel.PowerMode(
    2,
    "15W",
    {
        "CPU_ONLINE": {f"CORE_{n}": str(int(n < 4)) for n in range(8)},
        "CPU_A78_0": {"MAX_FREQ": "1113600"},
        "CPU_A78_1": {"MAX_FREQ": "-1"},
        "GPU": {"MAX_FREQ": "420750000"},
        "EMC": {"MAX_FREQ": "0"},
    },
)


def test_a_power_mode_says_what_it_limits_in_si_units():
    mode = modes.NvpMode(W15, nvpmodel.Conf((W15,), {}))
    limits = {"cpu_cores": 4.0, "cpu_hz": 1113.6e6, "gpu_hz": 420.75e6}
    assert mode.features() == limits
    assert Together(mode, Affinity([0, 1])).features() == limits | {"cpu_cores": 2.0}


def test_a_row_of_the_list_has_the_cores_and_clocks_of_the_mode(monkeypatch):
    now = {"absent": "no such program"}
    monkeypatch.setattr(modes.NvpMode, "now", lambda mode: now)
    row = modes.NvpMode(W15, nvpmodel.Conf((W15,), {})).row()
    assert (row.id, row.cores, row.cpu_max_hz, row.gpu_max_hz, row.emc_max_hz) == (
        2,
        (0, 1, 2, 3),
        None,
        420750000,
        None,
    )
    assert (row.default, row.now, row.change) == (False, False, "not known")
    now = W15
    here = modes.NvpMode(W15, nvpmodel.Conf((W15,), {})).row()
    assert (here.now, here.change) == (True, "live")
    capped = nvpmodel.PowerMode(
        3, "C", {"CPU_A": {"MAX_FREQ": "1000"}, "CPU_B": {"MAX_FREQ": "3000"}}, default=True
    )
    found = modes.NvpMode(capped, nvpmodel.Conf((capped,), {})).row()
    assert (found.cpu_max_hz, found.default, found.now) == (3_000_000, True, False)
    assert modes.JetsonClocks().row() == Row(
        "jetson_clocks", why="every clock at the highest that the power mode allows"
    )


def test_only_what_a_reboot_mends_is_said_to_need_one():
    mode = modes.NvpMode(W15, nvpmodel.Conf((W15,), {}))
    assert mode._not_in_effect("x").fix == "" and "reboot" in mode._not_in_effect("x", reboot=True).fix


def test_power_modes_come_before_what_has_no_number_and_the_present_one_is_marked(monkeypatch):
    found = {
        "cpus=0": Affinity([0]),
        "15W": modes.NvpMode(W15, nvpmodel.Conf((W15,), {})),
        "cpus=0-1": Affinity([0, 1]),
    }
    monkeypatch.setattr(modes.NvpMode, "now", lambda mode: {"absent": "no such program"})
    monkeypatch.setattr(catalog, "settings", lambda devices: (found, ()))
    rows = catalog.listing({})
    assert [row.name for row in rows[:3]] == ["15W", "cpus=0", "cpus=0-1"]
    assert len(rows) == 3 + len(catalog.offered({}))
    assert not rows[0].now
    monkeypatch.setattr(modes.NvpMode, "now", lambda mode: W15)
    assert catalog.listing({})[0].now
