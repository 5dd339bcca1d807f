"""Affinity and quota for real here; MPS and the power limit with programs that answer as the real ones do."""

import os
import subprocess
import sys
import tempfile
from pathlib import Path

import pytest
from refusing import refused

from edgescope.bench.in_mode import in_mode
from edgescope.devices.base import Undo
from edgescope.devices.cpu.limits import cpu_limit
from edgescope.devices.kernel_files import is_absent
from edgescope.devices.replay import device
from edgescope.errors import SettingError, UnsupportedError, UsageError
from edgescope.modes import catalog, cgroup, enter, gpu_power, journal, mps, quota
from edgescope.modes.affinity import Affinity, some
from edgescope.modes.privileged import act
from edgescope.modes.quota import Quota
from edgescope.units import ranges

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


def test_affinity_holds_in_the_child_and_nothing_is_written(tmp_path):
    with enter.entered(catalog.find(f"cpus={CPUS[0]}", {})) as mode:
        assert child(mode)[0] == [CPUS[0]]
    assert sorted(os.sched_getaffinity(0)) == CPUS and not (tmp_path / "state").exists()


def test_affinity_to_a_cpu_that_is_not_here_is_unsupported():
    refused(Affinity([CPUS[0], 4000]), UnsupportedError, "E-CPUS-1: CPU 4000 cannot be used here")


def test_a_problem_names_the_cpus_there_are():
    other = Affinity([4001])
    assert other.problem() == f"this process may use CPUs {ranges(CPUS)}"
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


def test_a_quota_limits_the_child_for_real_and_its_group_is_removed(capfd):
    before = cpu_limit(Path("/"))
    _, (_, limit, used) = entered_quota(0.3)
    assert float(limit) == 0.3
    assert used < 0.5 * 0.6  # it tried to use 0.6 s of one CPU
    assert cpu_limit(Path("/")) == before
    assert "I-RST: restored: control group edgescope-" in capfd.readouterr().err
    assert journal.left_behind() == []


def test_a_quota_within_a_quota_has_a_group_of_its_own():
    base = cgroup.base(Path("/"))
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
    assert journal.left_behind() == []


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


def test_a_user_is_given_a_systemd_scope_and_no_group_and_one_that_hangs_is_said(tmp_path, monkeypatch):
    real, base = os.access, cgroup.base(Path("/"))
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
    monkeypatch.setattr(quota, "_SYSTEMD_S", 0.1)
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
    for name, text in ((mps.CONTROL, CONTROL), ("nvidia-smi", SMI)):
        (where / name).write_text(text)
        (where / name).chmod(0o755)
    (where / "limit").write_text("700.00\n")
    monkeypatch.setenv("PATH", f"{where}:{os.environ['PATH']}")
    monkeypatch.setenv("SMI", str(where))
    return where


def test_mps_is_started_asked_and_stopped(programs, monkeypatch):
    with enter.entered(catalog.find("mps=50", {})) as mode:
        env = mode.launch().env
        pipe = Path(env[mps.PIPE]) / "control"
        assert env[mps.PERCENT] == "50" and pipe.exists()
        assert mode.problem() == f"{mps.PERCENT} is not set"  # not in this process
        for key, value in env.items():
            monkeypatch.setenv(key, value)
        assert mode.problem() == "" and f"{mps.PERCENT}=50" in mode.evidence()
    assert not pipe.parent.exists()


@pytest.fixture
def temporary(tmp_path, monkeypatch):
    where = tmp_path / "temporary"
    where.mkdir()
    monkeypatch.setattr(tempfile, "tempdir", str(where))
    return where


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


def test_a_daemon_that_will_not_stop_is_not_told_as_restored_one_that_is_gone_is(
    programs, temporary, monkeypatch
):
    with pytest.raises(SettingError, match=r"E-MODE-5.*not stopped.*not supported on this platform"):  # noqa: SIM117
        with enter.entered(catalog.find("mps=50", {})):
            monkeypatch.setenv("MPS_BROKEN", "1")
    (folder,) = temporary.iterdir()
    (programs / mps.CONTROL).write_text("#!/bin/sh\necho Cannot find MPS control daemon process\nexit 1\n")
    enter.journal().recover()
    assert not folder.exists()


def test_mps_that_may_not_be_noted_leaves_no_folder(programs, temporary):
    held = journal.DiskJournal()
    held.note("another process", Undo("w", ("x", "1")))
    refused(catalog.find("mps=50", {}), SettingError, "E-MODE-3")
    held._drop()
    assert not list(temporary.iterdir())


def test_a_power_limit_needs_the_users_word_is_verified_and_restored(programs, monkeypatch):
    mode = catalog.find("gpu_power=250", {})
    refused(mode, UsageError, r"E-MODE-7.*--allow-power-limit")
    monkeypatch.setenv(gpu_power.ALLOWED, "1")
    with enter.entered(mode):
        assert (
            programs / "limit"
        ).read_text() == "250\n" and mode.evidence() == "nvidia-smi -i 0: power.limit 250 W"
    assert (programs / "limit").read_text() == "700\n"


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
    monkeypatch.setenv(gpu_power.ALLOWED, "1")
    if marker:
        (programs / marker).touch()
    refused(gpu_power.GpuPower(watts), error, says)


def test_the_gpu_is_the_one_that_cuda_calls_0_or_none(programs, monkeypatch):
    monkeypatch.setenv(gpu_power.ALLOWED, "1")
    for name in ("CUDA_VISIBLE_DEVICES", "CUDA_DEVICE_ORDER"):
        monkeypatch.delenv(name, raising=False)
    assert gpu_power.board() == 0
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "GPU-8f3c")
    refused(gpu_power.GpuPower(250), UsageError, r"E-MODE-13.*CUDA_VISIBLE_DEVICES=GPU-8f3c")
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "3,1")
    (programs / "gpus").write_text("GPU 0: A\n  MIG 1g\nGPU 1: B\n")
    refused(gpu_power.GpuPower(250), UsageError, r"E-MODE-13.*2 GPUs, CUDA_DEVICE_ORDER=not set")
    monkeypatch.setenv("CUDA_DEVICE_ORDER", "PCI_BUS_ID")
    with enter.entered(gpu_power.GpuPower(250)) as mode:
        assert mode.evidence() == "nvidia-smi -i 3: power.limit 250 W"
    asked = (programs / "asked").read_text().splitlines()
    assert "-i 3 -pl 250" in asked and "-i 3 -pl 700" in asked and not any("-i 0" in a for a in asked)


def test_no_setting_of_this_machine_is_entered_for_a_recorded_board():
    recorded = device.devices("orin_nano")
    for name in ("15W", "quota=0.5", "cpus=0", "governor=performance", "gpu_power=200", "mps=50"):
        with pytest.raises(SettingError, match="E-REC-7"):
            catalog.find(name, recorded)
    with pytest.raises(UsageError, match="E-MODE-1:"):
        catalog.find("quota=no", recorded)
    assert catalog.find("as_is", recorded).name == "as_is"


def test_a_setting_of_a_process_is_not_for_a_running_one():
    with pytest.raises(UsageError, match="E-MODE-11"), in_mode(f"cpus={CPUS[0]}", {}):
        pytest.fail("it was entered")


def test_the_launcher_says_why_it_cannot_and_starts_nothing():
    argv = [sys.executable, "-m", "edgescope.modes.launcher", "--cpus", "4001", "--", "echo", "started"]
    done = subprocess.run(argv, capture_output=True, text=True, check=False)
    assert done.returncode == 4 and done.stdout == "" and done.stderr
