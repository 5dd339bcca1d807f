"""Affinity and quota for real here; MPS and the power limit with programs that answer as the real ones do."""

import errno
import os
import subprocess
import sys
import tempfile
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import ClassVar

import pytest

from edgescope.devices import replay
from edgescope.devices.base import Undo
from edgescope.devices.cpu.limits import cpu_limit
from edgescope.devices.kernel_files import is_absent
from edgescope.errors import SettingError, UnsupportedError, UsageError
from edgescope.modes import catalog, cpu, enter, gpu, launcher, privileged
from edgescope.modes.catalog import Together
from edgescope.modes.cpu import Affinity, Quota, some
from edgescope.modes.enter import in_mode
from edgescope.modes.privileged import act
from edgescope.process import Launch
from edgescope.records import Machine, Result, Status, Trial
from edgescope.units import ranges
from refusing import refused

CPUS = sorted(os.sched_getaffinity(0))
#: What a child says of itself, and how much CPU time it gets in half a second of trying.
SAYS = """
import os, sys, time
from pathlib import Path
from edgescope.devices.cpu.limits import cpu_limit
start, used = time.perf_counter(), time.process_time()
while time.perf_counter() - start < 0.6: pass
print(sorted(os.sched_getaffinity(0)), cpu_limit(Path("/")), time.process_time() - used, os.getpid(), sep="|")
"""


@pytest.fixture(autouse=True)
def state(tmp_path, monkeypatch):
    monkeypatch.setenv("EDGESCOPE_STATE", str(tmp_path / "state"))
    monkeypatch.setattr(enter, "_JOURNALS", {})


def child(mode):
    launch = mode.launch()
    env, prefix = launch.env, launch.prefix
    argv = [*prefix, sys.executable, "-c", SAYS]
    started = subprocess.Popen(argv, env={**os.environ, **env}, stdout=subprocess.PIPE, text=True)
    out, _ = started.communicate(timeout=60)
    assert started.returncode == 0
    affinity, limit, used, pid = out.strip().split("|")
    assert (
        int(pid) == started.pid
    )  # the launcher became the program, so what is watched and killed is the program
    return eval(affinity), limit, float(used)


@pytest.mark.slow
def test_affinity_holds_in_the_child_and_nothing_is_written(tmp_path):
    with enter.entered(catalog.find(f"cpus={CPUS[0]}", {})) as mode:
        assert child(mode)[0] == [CPUS[0]]
    assert sorted(os.sched_getaffinity(0)) == CPUS and not (tmp_path / "state").exists()


def test_affinity_to_a_cpu_that_is_not_here_is_unsupported():
    refused(Affinity([CPUS[0], 4000]), UnsupportedError, "E-CPUS-1: CPU 4000 cannot be used here")


def test_a_problem_names_the_cpus_there_are():
    other = Affinity([4001])
    assert other.problem().endswith(f" CPUs {ranges(CPUS)}")
    assert Affinity(CPUS).problem() == "" and ranges(CPUS) in Affinity(CPUS).evidence()


@pytest.mark.parametrize(
    ("numbers", "text"), [([], ""), ([3], "3"), ([0, 1, 2], "0-2"), ([8, 0, 1, 3], "0-1,3,8")]
)
def test_ranges_are_the_kernels(numbers, text):
    assert ranges(numbers) == text


def test_some_are_fewer_than_all():
    assert list(some([0, 1, 2, 3, 4, 5])) == ["cpus=0", "cpus=0-1", "cpus=0-3"]
    assert list(some([0, 1])) == ["cpus=0"] and some([0]) == {}


def entered_quota(cpus):
    try:
        with enter.entered(Quota(cpus)) as mode:
            return mode, child(mode)
    except UnsupportedError as error:
        pytest.skip(str(error))


@pytest.mark.slow
def test_a_quota_limits_the_child_for_real_and_its_group_is_removed(capfd):
    before = cpu_limit(Path("/"))
    _, (_, limit, used) = entered_quota(0.3)
    assert float(limit) == 0.3
    assert used < 0.5 * 0.6  # it tried to use 0.6 s of one CPU
    assert cpu_limit(Path("/")) == before
    assert "I-RST: restored: control group edgescope-" in " ".join(capfd.readouterr().err.split())
    assert enter.left_behind() == []


def test_a_quota_within_a_quota_has_a_group_of_its_own():
    base = privileged.cgroup_base(Path("/"))
    if not os.access(base, os.W_OK):
        pytest.skip("this process may make no control group")
    outer, inner = f"edgescope-{os.getpid()}", f"edgescope-{os.getpid()}-1"
    with enter.entered(Quota(0.5)):
        with enter.entered(Quota(0.3)) as mode:
            assert inner in mode.launch().prefix and (base / inner).is_dir()
        assert (base / outer).is_dir() and not (base / inner).exists()
    assert not (base / outer).exists()


def test_a_quota_that_is_not_there_is_a_problem():
    problem = Quota(0.37).problem()
    assert ("no limit is set" in problem) if is_absent(cpu_limit(Path("/"))) else ("the limit is" in problem)


def test_no_way_to_limit_is_unsupported_with_the_reason(tmp_path):
    (tmp_path / "sys").mkdir()
    refused(Quota(0.5, tmp_path), UnsupportedError, r"E-QUOTA-1.*no control group can limit CPU time")
    assert enter.left_behind() == []


HOSTILE_GROUPS = [
    (),
    ("set",),
    ("set", "edgescope-1/../../system.slice", "50000"),
    ("set", "system.slice", "50000"),
    ("set", "edgescope-", "50000"),
    ("set", "edgescope-1", "0"),
    ("set", "edgescope-1", "max"),
    ("set", "edgescope-1\n", "50000"),
    ("join", "edgescope-1", "0"),
    ("join", "edgescope-1", "1 2"),
    ("remove", ".."),
    ("remove", "edgescope-1", "edgescope-2"),
]


@pytest.mark.parametrize("words", HOSTILE_GROUPS, ids=ascii)
def test_a_journal_names_no_group_but_our_own(words, tmp_path):
    (tmp_path / "sys/fs/cgroup").mkdir(parents=True)
    (tmp_path / "sys/fs/cgroup/cgroup.controllers").write_text("cpu")
    before = sorted(tmp_path.rglob("*"))
    with pytest.raises(SettingError, match="E-MODE-4"):
        act(("quota", *words), tmp_path)
    assert sorted(tmp_path.rglob("*")) == before


def test_a_group_of_cgroup_v2_is_limited_entered_and_removed(tmp_path):
    base = tmp_path / "sys/fs/cgroup"
    base.mkdir(parents=True)
    (base / "cgroup.controllers").write_text("cpu")
    act(("quota", "set", "edgescope-7", "30000"), tmp_path)
    assert (base / "cgroup.subtree_control").read_text() == "+cpu"
    assert (base / "edgescope-7/cpu.max").read_text() == "30000 100000"
    act(("quota", "join", "edgescope-7", "4711"), tmp_path)
    assert (base / "edgescope-7/cgroup.procs").read_text() == "4711"
    for name in ("cpu.max", "cgroup.procs"):  # a kernel's files go with their group
        (base / "edgescope-7" / name).unlink()
    act(("quota", "remove", "edgescope-7"), tmp_path)
    assert not (base / "edgescope-7").exists()


@pytest.mark.process
def test_a_user_is_given_a_systemd_scope_and_no_group_and_one_that_hangs_is_said(tmp_path, monkeypatch):
    real, base = os.access, privileged.cgroup_base(Path("/"))
    monkeypatch.setattr(os, "access", lambda path, mode: Path(path) != base and real(path, mode))
    where = tmp_path / "bin"
    where.mkdir()
    (where / "systemd-run").write_text('#!/bin/sh\n[ -e "$0.hangs" ] && exec sleep 9\nexit 0\n')
    (where / "systemd-run").chmod(0o755)
    monkeypatch.setenv("PATH", f"{where}:{os.environ['PATH']}")
    with enter.entered(Quota(0.5)) as mode:
        prefix = mode.launch().prefix
        assert prefix[1:] == ("--user", "--scope", "--quiet", "-p", "CPUQuota=50%", "--")
        assert not (tmp_path / "state").exists()
    (where / "systemd-run.hangs").touch()
    monkeypatch.setattr(cpu, "_SYSTEMD_S", 0.1)
    refused(Quota(0.5), UnsupportedError, r"E-QUOTA-1.*timed out")
    (where / "systemd-run").write_bytes(b"no program")
    refused(Quota(0.5), UnsupportedError, r"E-QUOTA-1.*Exec format error")


NO_MODES = (
    *(
        "",
        "+",
        "cpus=",
        "cpus=a",
        "cpus=3-1",
        "cpus=\u0661",
        "cpus=0-9999",
        "cpus=0,,1",
        "cpus=0\n",
        "as_is+",
        "15W",
    ),
    *(
        "quota=0",
        "quota=-1",
        "quota=nan",
        "quota=1e9",
        "quota=\u0661",
        "mps=0",
        "mps=101",
        "governor=../x",
        "power=1",
    ),
)


@pytest.mark.parametrize("name", NO_MODES)
def test_what_is_no_mode_is_e_mode_1(name):
    with pytest.raises(UsageError, match="E-MODE-1:"):
        catalog.find(name, {})


CONTROL = """#!/bin/sh
# answers as nvidia-cuda-mps-control does: -d starts the daemon (its pipe `control` appears), words come on stdin
[ -n "$MPS_BROKEN" ] && { echo "Cannot start MPS control daemon: not supported on this platform"; exit 1; }
if [ "$1" = -d ]; then : > "$CUDA_MPS_PIPE_DIRECTORY/control"; exit 0; fi
read word
[ -e "$CUDA_MPS_PIPE_DIRECTORY/control" ] || { echo "Cannot find MPS control daemon process"; exit 1; }
[ "$word" = quit ] && rm "$CUDA_MPS_PIPE_DIRECTORY/control"
exit 0
"""
SMI = """#!/bin/sh
echo "$*" >> "$SMI/asked"
case "$*" in
  -L) [ -e "$SMI/gpus" ] && cat "$SMI/gpus" || echo "GPU 0: A (UUID: GPU-8f3c)" ;;
  *--query-gpu=*) [ -e "$SMI/none" ] && echo '[N/A], [N/A], [N/A]' || echo "$(cat $SMI/limit), 200.00, 700.00" ;;
  *-pl*) [ -e "$SMI/denied" ] && { echo "Insufficient Permissions"; exit 4; }
         [ -e "$SMI/deaf" ] || echo "$4" > "$SMI/limit" ;;
esac
"""


@pytest.fixture
def programs(tmp_path, monkeypatch):
    where = tmp_path / "bin"
    where.mkdir()
    for name, text in ((gpu.CONTROL, CONTROL), ("nvidia-smi", SMI)):
        (where / name).write_text(text)
        (where / name).chmod(0o755)
    (where / "limit").write_text("700.00\n")
    monkeypatch.setenv("PATH", f"{where}:{os.environ['PATH']}")
    monkeypatch.setenv("SMI", str(where))
    return where


@pytest.mark.process
def test_mps_is_started_asked_and_stopped(programs, monkeypatch):
    with enter.entered(catalog.find("mps=50", {})) as mode:
        env = mode.launch().env
        pipe = Path(env[gpu.PIPE]) / "control"
        assert env[gpu.PERCENT] == "50" and pipe.exists()
        assert mode.problem() == f"{gpu.PERCENT} is not set"  # not in this process
        for key, value in env.items():
            monkeypatch.setenv(key, value)
        assert mode.problem() == "" and f"{gpu.PERCENT}=50" in mode.evidence()
    assert not pipe.parent.exists()


@pytest.fixture
def temporary(tmp_path, monkeypatch):
    where = tmp_path / "temporary"
    where.mkdir()
    monkeypatch.setattr(tempfile, "tempdir", str(where))
    return where


@pytest.mark.process
def test_mps_that_does_not_start_is_unsupported_with_its_own_words(programs, temporary, monkeypatch):
    monkeypatch.setenv("MPS_BROKEN", "1")
    refused(catalog.find("mps=50", {}), UnsupportedError, r"E-MPS-1.*not supported on this platform")
    assert not list(temporary.iterdir())


def test_without_mps_it_is_unsupported_and_nothing_is_told_as_restored(
    temporary, monkeypatch, tmp_path, capsys
):
    monkeypatch.setenv("PATH", str(tmp_path))
    refused(catalog.find("mps=50", {}), UnsupportedError, r"E-MPS-1.*no nvidia-cuda-mps-control")
    assert not list(temporary.iterdir()) and "restored" not in capsys.readouterr().err


@pytest.mark.process
def test_a_daemon_that_will_not_stop_is_not_told_as_restored_one_that_is_gone_is(
    programs, temporary, monkeypatch
):
    with pytest.raises(SettingError, match=r"E-MODE-5.*not stopped.*not supported on this platform"):  # noqa: SIM117
        with enter.entered(catalog.find("mps=50", {})):
            monkeypatch.setenv("MPS_BROKEN", "1")
    (folder,) = temporary.iterdir()
    (programs / gpu.CONTROL).write_text("#!/bin/sh\necho Cannot find MPS control daemon process\nexit 1\n")
    enter.journal().recover()
    assert not folder.exists()


def test_mps_that_may_not_be_noted_leaves_no_folder(programs, temporary):
    held = enter.DiskJournal()
    held.note("another process", Undo("w", ("x", "1")))
    refused(catalog.find("mps=50", {}), SettingError, "E-MODE-3")
    held._drop()
    assert not list(temporary.iterdir())


@pytest.mark.process
def test_a_power_limit_needs_the_users_word_is_verified_and_restored(programs, monkeypatch):
    mode = catalog.find("gpu_power=250", {})
    refused(mode, UsageError, r"E-MODE-7.*--allow-power-limit")
    monkeypatch.setenv(gpu.ALLOWED, "1")
    with enter.entered(mode):
        assert (
            programs / "limit"
        ).read_text() == "250\n" and mode.evidence() == "nvidia-smi -i 0: power.limit 250 W"
    assert (programs / "limit").read_text() == "700\n"


@pytest.mark.process
@pytest.mark.parametrize(
    ("marker", "watts", "error", "says"),
    [
        ("none", 250, UnsupportedError, "E-MODE-9"),
        ("denied", 250, SettingError, "E-MODE-4.*Insufficient Permissions"),
        ("deaf", 250, SettingError, "E-MODE-2.*power.limit 700 W"),
        ("", 90, UsageError, "E-MODE-8.*200 to 700 W"),
    ],
)
def test_a_power_limit_that_cannot_be_had_is_said(programs, monkeypatch, marker, watts, error, says):
    monkeypatch.setenv(gpu.ALLOWED, "1")
    if marker:
        (programs / marker).touch()
    refused(gpu.GpuPower(watts), error, says)


@pytest.mark.process
def test_the_gpu_is_the_one_that_cuda_calls_0_or_none(programs, monkeypatch):
    monkeypatch.setenv(gpu.ALLOWED, "1")
    for name in ("CUDA_VISIBLE_DEVICES", "CUDA_DEVICE_ORDER"):
        monkeypatch.delenv(name, raising=False)
    assert gpu.board() == 0
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "GPU-8f3c")
    refused(gpu.GpuPower(250), UsageError, r"E-MODE-13.*CUDA_VISIBLE_DEVICES=GPU-8f3c")
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "3,1")
    (programs / "gpus").write_text("GPU 0: A\n  MIG 1g\nGPU 1: B\n")
    refused(gpu.GpuPower(250), UsageError, r"E-MODE-13.*2 GPUs, CUDA_DEVICE_ORDER=not set")
    monkeypatch.setenv("CUDA_DEVICE_ORDER", "PCI_BUS_ID")
    with enter.entered(gpu.GpuPower(250)) as mode:
        assert mode.evidence() == "nvidia-smi -i 3: power.limit 250 W"
    asked = (programs / "asked").read_text().splitlines()
    assert "-i 3 -pl 250" in asked and "-i 3 -pl 700" in asked and not any("-i 0" in a for a in asked)


@pytest.mark.wings
def test_no_setting_of_this_machine_is_entered_for_a_recorded_board():
    recorded = replay.devices("orin_nano")
    for name in ("15W", "quota=0.5", "cpus=0", "governor=performance", "gpu_power=200", "mps=50"):
        with pytest.raises(SettingError, match="E-REC-7"):
            catalog.find(name, recorded)
    with pytest.raises(UsageError, match="E-MODE-1:"):
        catalog.find("quota=no", recorded)
    assert catalog.find("as_is", recorded).name == "as_is"


def test_a_setting_of_a_process_is_not_for_a_running_one():
    with pytest.raises(UsageError, match="E-MODE-11"), in_mode(f"cpus={CPUS[0]}", {}):
        pytest.fail("it was entered")


@pytest.mark.process
def test_the_launcher_says_why_it_cannot_and_starts_nothing():
    argv = [sys.executable, "-m", "edgescope.modes.launcher", "--cpus", "4001", "--", "echo", "started"]
    done = subprocess.run(argv, capture_output=True, text=True, check=False)
    assert done.returncode == 4 and done.stdout == "" and done.stderr


# -- the exact limits ------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "name",
    [
        *("cpus=4095", "cpus=0-2,4", "quota=0.01", "quota=1024", "mps=1", "mps=100", "mps=12.5"),
        *("gpu_power=1", "gpu_power=5000", "governor=x", "governor=performance"),
    ],
)
def test_a_mode_reaches_from_its_lowest_to_its_highest_value(name):
    assert catalog.find(name, {}).name == name


@pytest.mark.parametrize(
    ("name", "fix"),
    [
        ("cpus=4096", "write CPUs from 0 to 4095, the lower first"),
        ("cpus=x", "write cpus=0-1 or cpus=0,2"),
        ("quota=0.009", "write a number from 0.01 to 1024"),
        ("quota=1024.1", "write a number from 0.01 to 1024"),
        ("mps=0.9", "write a number from 1 to 100"),
        ("mps=100.1", "write a number from 1 to 100"),
        ("mps=x", "write a number from 1 to 100"),
        ("gpu_power=0.9", "write a number from 1 to 5000"),
        ("gpu_power=5000.1", "write a number from 1 to 5000"),
        ("governor=" + "x" * 33, "write governor=performance"),
        ("cpu=0", "--mode cpus=0"),
        ("qqqqqqqqq", "edgescope modes"),
    ],
)
def test_a_value_beyond_a_limit_is_told_the_limit(name, fix):
    with pytest.raises(UsageError, match="E-MODE-1") as caught:
        catalog.find(name, {})
    assert caught.value.fix == fix


def test_two_settings_of_one_kind_are_no_mode_and_of_two_kinds_are_both():
    with pytest.raises(UsageError, match="E-MODE-10"):
        catalog.find("cpus=0+cpus=1", {})
    both = catalog.find("quota=0.5+cpus=0", {})
    assert both.name == "quota=0.5+cpus=0" and [type(mode) for mode in both.modes] == [Quota, Affinity]


def test_powers_of_two_below_all_cpus_are_some_of_them():
    assert list(some(range(4))) == ["cpus=0", "cpus=0-1"]
    assert list(some(range(5))) == ["cpus=0", "cpus=0-1", "cpus=0-3"]
    assert Affinity([3, 1, 3]).cpus == (1, 3)


# -- groups ----------------------------------------------------------------------------------------------------


def group_folder(root, *names):
    for name in names:
        (root / "sys/fs/cgroup" / name).mkdir(parents=True)
        (root / "sys/fs/cgroup" / name / "cgroup.procs").touch()
    return root / "sys/fs/cgroup"


@pytest.mark.parametrize("names", [("cpu",), ("cpu,cpuacct",), ("cpu", "cpu,cpuacct")])
def test_a_group_of_cgroup_v1_has_a_period_and_a_quota(tmp_path, names):
    top = group_folder(tmp_path, *names)
    assert privileged.cgroup_base(tmp_path) == top / names[0]
    before = os.umask(0)
    try:
        for quota_us in ("20000", "30000"):  # a group that is there is set again
            assert act(("quota", "set", "edgescope-7", quota_us), tmp_path) == ""
    finally:
        os.umask(before)
    group = top / names[0] / "edgescope-7"
    assert group.stat().st_mode & 0o777 == 0o755
    assert {path.name: path.read_text() for path in group.iterdir()} == {
        "cpu.cfs_period_us": "100000",
        "cpu.cfs_quota_us": "30000",
    }
    assert act(("quota", "remove", "edgescope-8"), tmp_path) == ""


def test_a_free_name_is_this_processes_with_the_next_number(tmp_path):
    mine = f"edgescope-{os.getpid()}"
    assert privileged.free_group(tmp_path) == mine
    (tmp_path / mine).mkdir()
    assert privileged.free_group(tmp_path) == f"{mine}-1"
    (tmp_path / f"{mine}-1").mkdir()
    assert privileged.free_group(tmp_path) == f"{mine}-2"


@pytest.mark.parametrize(("number", "tries"), [(errno.EBUSY, 61), (errno.ENOENT, 1)])
def test_a_group_that_is_busy_is_tried_again_for_three_seconds(tmp_path, monkeypatch, number, tries):
    group = group_folder(tmp_path, "cpu") / "cpu/edgescope-7"
    group.mkdir()
    tried, slept = [], []

    def rmdir(path):
        tried.append(path)
        raise OSError(number, "not now")

    monkeypatch.setattr(Path, "rmdir", rmdir)
    monkeypatch.setattr(privileged, "time", SimpleNamespace(sleep=slept.append))
    with pytest.raises(OSError, match="not now"):
        privileged.change_group(("remove", "edgescope-7"), tmp_path)
    assert tried == [group] * tries and sum(slept) == pytest.approx(3.0 if tries > 1 else 0)


def test_a_group_that_was_busy_once_is_removed(tmp_path, monkeypatch):
    group = group_folder(tmp_path, "cpu") / "cpu/edgescope-7"
    group.mkdir()
    real, answers = Path.rmdir, [OSError(errno.EBUSY, "dying")]

    def rmdir(path):
        if answers:
            raise answers.pop()
        real(path)

    monkeypatch.setattr(Path, "rmdir", rmdir)
    monkeypatch.setattr(privileged, "time", SimpleNamespace(sleep=lambda s: None))
    assert privileged.change_group(("remove", "edgescope-7"), tmp_path) == "" and not group.exists()


class Noted:
    """A journal in memory."""

    def __init__(self):
        self.undos, self.restored = [], []

    def note(self, name, undo):
        self.undos.append((name, undo))

    def restore(self, name):
        self.restored.append(name)


def test_a_quota_makes_a_group_of_its_microseconds(tmp_path):
    top = group_folder(tmp_path, "cpu") / "cpu"
    mode, noted, group = Quota(0.3, tmp_path), Noted(), f"edgescope-{os.getpid()}"
    assert mode.launch() == Launch()
    mode.enter(noted)
    assert (top / group / "cpu.cfs_quota_us").read_text() == "30000"
    words = ("-m", "edgescope.modes.launcher", "--group", group, "--root", str(tmp_path), "--")
    assert mode.launch() == Launch((sys.executable, *words))
    ((name, undo),) = noted.undos
    assert (name, undo.request, undo.root) == ("quota=0.3", ("quota", "remove", group), str(tmp_path))


@pytest.mark.parametrize(
    ("asked", "found", "problem"),
    [
        (0.0, 0.005, ""),
        (0.5, 0.496, ""),
        (0.5, 0.506, "the limit is 0.506 CPUs"),
        (0.5, 0.4, "the limit is 0.4 CPUs"),
        (0.5, {"absent": "no group"}, "no limit is set (no group)"),
    ],
)
def test_a_quota_is_the_kernels_to_half_a_per_cent_of_a_cpu(monkeypatch, asked, found, problem):
    monkeypatch.setattr(cpu, "cpu_limit", lambda root: found)
    assert Quota(asked).problem() == problem
    said = found["absent"] if isinstance(found, dict) else f"{found:g} CPUs"
    assert Quota(asked).evidence() == f"control group: {said}"


def test_systemd_is_asked_for_a_scope_with_a_limit_and_its_last_words_are_told(tmp_path, monkeypatch):
    asked = []

    def run(words, **how):
        asked.append((words, how))
        return SimpleNamespace(returncode=1, stderr="x" * 250 + "\nno  bus")

    monkeypatch.setattr(cpu.shutil, "which", lambda name: f"/bin/{name}")
    monkeypatch.setattr(cpu.subprocess, "run", run)
    monkeypatch.setattr(cpu, "cgroup_base", lambda root: tmp_path / "nowhere")
    with pytest.raises(UnsupportedError, match="E-QUOTA-1") as caught:
        Quota(0.3).enter(Noted())
    assert caught.value.evidence.endswith("systemd-run: " + "x" * 193 + " no bus")
    words = ["/bin/systemd-run", "--user", "--scope", "--quiet", "-p", "CPUQuota=30%", "--", "true"]
    how = {"capture_output": True, "text": True, "errors": "replace", "timeout": 20, "check": False}
    assert asked == [(words, how)]


# -- the launcher ----------------------------------------------------------------------------------------------


def test_the_launcher_sets_what_it_is_told_and_becomes_the_program(monkeypatch):
    did = []
    monkeypatch.setattr(privileged, "act", lambda words, root: did.append((words, root)))
    monkeypatch.setattr(os, "sched_setaffinity", lambda pid, cpus: did.append((pid, list(cpus))))
    monkeypatch.setattr(os, "execvp", lambda name, words: did.append((name, words)))
    launcher.main(["--", "true"])
    assert did == [("true", ["true"])]
    did.clear()
    launcher.main(["--cpus", "0-1", "--group", "edgescope-7", "--", "echo", "--", "a"])
    join = ("quota", "join", "edgescope-7", str(os.getpid()))
    assert did == [(join, Path("/")), (0, [0, 1]), ("echo", ["echo", "--", "a"])]
    did.clear()
    launcher.main(["--group", "edgescope-8", "--root", "/there", "--", "true"])
    assert did[0][1] == Path("/there")


@pytest.mark.parametrize("error", [OSError("no such group"), SettingError("E-MODE-4", "no group")])
def test_a_launcher_that_cannot_returns_4(monkeypatch, capsys, error):
    def act(words, root):
        raise error

    monkeypatch.setattr(privileged, "act", act)
    assert launcher.main(["--group", "edgescope-7", "--", "true"]) == 4
    assert str(error) in " ".join(capsys.readouterr().err.split())


# -- MPS -------------------------------------------------------------------------------------------------------


def daemon(folder, monkeypatch, answers, percent=50.0):
    """A daemon in a folder whose control program answers these (exit status, output); what it was asked."""
    asked, one = [], gpu.Mps(percent)
    one._folder = folder

    def run(words, **how):
        asked.append((words, how))
        answer = answers.pop(0)
        if isinstance(answer, Exception):
            raise answer
        return SimpleNamespace(returncode=answer[0], stdout=answer[1])

    monkeypatch.setattr(gpu.subprocess, "run", run)
    return one, asked


def test_a_daemon_that_answered_and_had_a_server_is_alive(tmp_path, monkeypatch):
    (tmp_path / "log").mkdir()
    log = tmp_path / "log/server.log"
    one, asked = daemon(tmp_path, monkeypatch, [(0, "12\n"), (0, " \n"), (0, ""), (0, "")])
    one.begin()
    assert one.dead() == "", "it has a server now"
    assert one.dead().startswith("it had no server meanwhile")
    log.write_text("first\n")
    assert one.dead() == "", "a server wrote meanwhile"
    one.begin()
    (tmp_path / "log/control.log").write_text("one\ntwo\nthree\n")
    assert one.dead() == "it had no server meanwhile, so it had no client; two | three | first"
    words, how = asked[0]
    assert words == [gpu.CONTROL] and how["input"] == "get_server_list\n"
    assert (how["timeout"], how["check"], how["text"], how["errors"]) == (20, False, True, "replace")
    assert (how["env"][gpu.PIPE], how["env"][gpu.LOG]) == (str(tmp_path), f"{tmp_path}/log")
    assert how["env"]["PATH"] == os.environ["PATH"] and how["stderr"] == subprocess.STDOUT


def test_a_daemon_that_does_not_answer_is_dead_with_the_end_of_its_words(tmp_path, monkeypatch):
    (tmp_path / "log").mkdir()
    (tmp_path / "log/server.log").write_text("a\n" + "b" * 400 + "\n")
    answers = [(1, "x " * 200), (3, " "), OSError("gone")]
    one, _ = daemon(tmp_path, monkeypatch, answers)
    assert one.dead() == " ".join(["x"] * 200)[-300:] + "; " + "b" * 300
    assert one.dead() == "it ended with 3; " + "b" * 300
    assert one.dead() == "gone; " + "b" * 300
    assert gpu.Mps().dead() == "it was never started"


def test_a_share_of_the_gpu_is_in_the_environment_only_with_a_daemon(tmp_path, monkeypatch):
    one, whole = gpu.Mps(40), gpu.Mps()
    assert one.launch() == whole.launch() == Launch()
    assert (one.name, whole.name) == ("mps=40", "mps")
    one._folder = whole._folder = tmp_path
    places = {gpu.PIPE: str(tmp_path), gpu.LOG: f"{tmp_path}/log"}
    assert whole.launch() == Launch(env=places) and one.launch() == Launch(env={**places, gpu.PERCENT: "40"})
    assert one.problem({}) == f"{gpu.PERCENT} is not set" and "not there" in whole.problem({})
    assert whole.problem({gpu.PERCENT: "40"}) == f"{gpu.PERCENT} is 40"
    (tmp_path / "control").touch()
    assert one.problem({**places, gpu.PERCENT: "40"}) == whole.problem(places) == ""


def test_a_daemon_is_stopped_and_its_folder_removed_unless_it_is_not_ours(tmp_path, monkeypatch):
    folder = tmp_path / "edgescope-mps-1"
    assert gpu.quit_daemon((str(folder),)) == "", "it is gone already"
    with pytest.raises(SettingError, match="E-MODE-4"):
        gpu.quit_daemon((str(tmp_path),))
    answers = [(1, "busy"), (1, "Cannot find MPS control daemon process")]
    _, asked = daemon(folder, monkeypatch, answers)
    folder.mkdir()
    (folder / "control").touch()
    with pytest.raises(SettingError, match="busy"):
        gpu.quit_daemon((str(folder),))
    assert folder.exists() and gpu.quit_daemon((str(folder),)) == "" and not folder.exists()
    assert [how["input"] for _, how in asked] == ["quit\n"] * 2


def sharing_trial(**keys):
    return Trial(model="null", **{"device": "cuda", "sharing": "mps=40", "processes": 2, **keys})


def test_sharing_by_mps_needs_a_gpu_and_one_daemon():
    assert (
        gpu.mps_of(sharing_trial()).percent == 40.0
        and gpu.mps_of(sharing_trial(sharing="mps")).percent is None
    )
    assert gpu.mps_of(sharing_trial(sharing="time_slicing", device="cpu")) is None
    with pytest.raises(UnsupportedError, match="E-MPS-3"):
        gpu.mps_of(sharing_trial(device="cpu"))
    with pytest.raises(UsageError, match="E-MODE-10"):
        gpu.mps_of(sharing_trial(mode="cpus=0+mps=50"))


def test_a_mode_is_joined_with_the_daemon_that_sharing_needs(monkeypatch):
    cpus = Affinity([0])
    assert gpu.with_sharing(cpus, sharing_trial(sharing="time_slicing")) == (cpus, None)
    both, one = gpu.with_sharing(cpus, sharing_trial())
    assert both.modes == (cpus, one) and one.percent == 40.0


def test_workers_without_the_daemon_are_refused(tmp_path):
    gpu.require_mps(sharing_trial(sharing="time_slicing"), {})
    (tmp_path / "control").touch()
    gpu.require_mps(sharing_trial(), {gpu.PERCENT: "40", gpu.PIPE: str(tmp_path)})
    with pytest.raises(SettingError, match="E-MPS-4"):
        gpu.require_mps(sharing_trial(), {gpu.PIPE: str(tmp_path)})


@pytest.mark.parametrize("status", [s for s in Status if s is not Status.UNSUPPORTED])
def test_what_a_daemon_did_not_serve_to_its_end_is_no_result(status):
    result = Result(id="r", trial=sharing_trial(), machine=Machine({}, {}), status=status)
    live, gone = (SimpleNamespace(dead=lambda word=word: word) for word in ("", "gone"))
    refused_result = replace(result, status=Status.UNSUPPORTED)
    assert gpu.rechecked(result, None) is gpu.rechecked(result, live) is result
    assert gpu.rechecked(refused_result, gone) is refused_result
    after = gpu.rechecked(result, gone)
    if status in (Status.OK, Status.UNSTABLE):
        assert after.status is Status.FAILED and after.reason.code == "E-MPS-2" and not after.warnings
    else:
        assert after.status is status and [w.code for w in after.warnings] == ["E-MPS-2"]


# -- the power limit -------------------------------------------------------------------------------------------


@pytest.mark.process
@pytest.mark.parametrize("watts", [200, 700])
def test_the_lowest_and_the_highest_power_limit_can_be_set(programs, monkeypatch, watts):
    monkeypatch.setenv(gpu.ALLOWED, "1")
    monkeypatch.delenv("CUDA_VISIBLE_DEVICES", raising=False)
    with enter.entered(gpu.GpuPower(watts)):
        assert float((programs / "limit").read_text()) == watts


@pytest.mark.parametrize(("limit", "same"), [(250.5, True), (249.5, True), (250.52, False), (249.48, False)])
def test_a_limit_that_is_half_a_watt_off_is_the_one_that_was_asked_for(monkeypatch, limit, same):
    asked = []
    monkeypatch.setattr(gpu, "_limits", lambda index: (limit, 100.0, 400.0))
    monkeypatch.setattr(gpu, "board", lambda: 3)
    monkeypatch.setattr(gpu, "_smi", lambda *words: asked.append(words) or "set")
    assert gpu.GpuPower(250).problem() == ("" if same else f"nvidia-smi says power.limit {limit:g} W")
    assert gpu.put_limit(("3", "250")) == ("" if same else "set")
    assert asked == ([] if same else [("-i", "3", "-pl", "250")])


@pytest.mark.parametrize(
    ("environ", "gpus", "board"),
    [
        ({}, 1, 0),
        ({"CUDA_VISIBLE_DEVICES": " 2 ,1"}, 1, 2),
        ({"CUDA_VISIBLE_DEVICES": "999", "CUDA_DEVICE_ORDER": "PCI_BUS_ID"}, 2, 999),
        ({"CUDA_VISIBLE_DEVICES": "1000", "CUDA_DEVICE_ORDER": "PCI_BUS_ID"}, 1, None),
        ({"CUDA_DEVICE_ORDER": "FASTEST_FIRST"}, 1, 0),
        ({"CUDA_DEVICE_ORDER": "FASTEST_FIRST"}, 2, None),
        ({}, 2, None),
    ],
)
def test_which_gpu_cuda_calls_0(monkeypatch, environ, gpus, board):
    listed = "".join(f"GPU {n}: A\n  MIG 1g\n" for n in range(gpus))
    monkeypatch.setattr(gpu, "_smi", lambda *words: listed)
    if board is not None:
        assert gpu.board(environ) == board
        return
    with pytest.raises(UsageError, match="E-MODE-13"):
        gpu.board(environ)


def test_nvidia_smi_is_asked_in_words_and_its_last_ones_are_told(monkeypatch):
    asked, answers = [], [(0, "1, 2", ""), (0, "x" * 300, ""), (9, "y" * 300, " no  root")]

    def run(words, **how):
        asked.append((words, how))
        code, out, err = answers.pop(0)
        return SimpleNamespace(returncode=code, stdout=out, stderr=err)

    monkeypatch.setattr(gpu.subprocess, "run", run)
    for _ in range(2):
        with pytest.raises(UnsupportedError, match="E-MODE-9") as caught:
            gpu._limits(4)
    assert caught.value.evidence == "x" * 100
    with pytest.raises(SettingError, match="E-MODE-4") as failed:
        gpu._smi("-L")
    assert failed.value.evidence == "y" * 292 + " no root"
    query = "--query-gpu=power.limit,power.min_limit,power.max_limit"
    words = ["nvidia-smi", "-i", "4", query, "--format=csv,noheader,nounits"]
    how = {"capture_output": True, "text": True, "errors": "replace", "timeout": 20, "check": False}
    assert asked[0] == (words, how)


def test_a_request_for_no_group_is_cut():
    with pytest.raises(SettingError) as caught:
        privileged.change_group(("x" * 500,))
    assert caught.value.code == "E-MODE-4" and caught.value.what.startswith(ascii(["x" * 500])[:200] + " is ")


def test_the_cpus_that_are_asked_about_are_this_threads_own(monkeypatch):
    """0 is the calling thread; the first process of a container has often all CPUs."""
    monkeypatch.setattr(os, "sched_getaffinity", lambda pid: {2, 3} if pid == 0 else {0, 1, 2, 3})
    mode = Affinity([3, 2, 3])
    assert (mode.name, mode.problem(), mode.cpus) == ("cpus=2-3", "", (2, 3))
    assert mode.enter(None) is mode.leave(None) is None and mode.evidence().endswith("CPUs 2-3")
    with pytest.raises(UnsupportedError) as caught:
        Affinity([1, 2]).enter(None)
    assert (caught.value.message.code, caught.value.message.fix[:15]) == ("E-CPUS-1", "--mode cpus=2-3")
    assert Affinity([2]).problem().endswith(" CPUs 2-3") and Affinity([1, 2, 3]).problem()


class Limits:
    """A mode that limits something, or has a problem; what befalls it is kept."""

    did: ClassVar[list[str]] = []

    def __init__(self, name, **what):
        self.name, self.what = name, what

    def launch(self):
        return Launch((self.name,), {self.name: "1"})

    def enter(self, journal):
        self.did.append(f"enter {self.name}")

    def leave(self, journal):
        self.did.append(f"leave {self.name}")
        if self.what.get("breaks"):
            raise SettingError("E-MODE-5", self.name)

    def problem(self):
        return self.what.get("problem", "")

    def evidence(self):
        return f"{self.name} is so"

    def features(self):
        return self.what.get("limits", {})


def test_modes_together_are_entered_in_order_and_left_the_last_first_whatever_happens(monkeypatch):
    monkeypatch.setattr(Limits, "did", [])
    both = Together(Limits("a", problem="no a"), Limits("b", breaks=True), Limits("c", problem="no c"))
    assert both.name == "a+b+c" and both.launch() == Launch(("a", "b", "c"), dict.fromkeys("abc", "1"))
    assert both.problem() == "no a; no c" and both.evidence() == "a is so; b is so; c is so"
    both.enter(None)
    with pytest.raises(SettingError):
        both.leave(None)
    assert Limits.did == [*(f"enter {n}" for n in "abc"), *(f"leave {n}" for n in "cba")]
    none = Together()
    assert (none.name, none.problem(), none.evidence(), none.features()) == ("as_is", "", "", {})
    assert none.launch() == Launch()


def test_of_two_limits_on_one_thing_the_lower_counts():
    first = Limits("a", limits={"cpu_cores": 4.0, "gpu_hz": 5.0, "no such": 1.0})
    second = Limits("b", limits={"cpu_cores": 2.0, "cpu_quota": 1.5})
    assert Together(first, second).features() == {"cpu_cores": 2.0, "cpu_quota": 1.5, "gpu_hz": 5.0}
