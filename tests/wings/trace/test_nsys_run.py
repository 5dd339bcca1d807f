"""How nsys is started: by what it offers and may, in Python and in a board's shell, and what its counters become."""

import getpass
import os
import subprocess
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest

from edgescope.analysis.kernels.account import account, sampled
from edgescope.analysis.kernels.rows import Rows
from edgescope.records import Absent, Channel, Readings
from edgescope.tracing import Samples
from edgescope.wings.trace import figures, nsys_run, tracers, trial
from edgescope.wings.trace.imported import read
from edgescope.wings.trace.page import document
from edgescope.wings.trace.verb import Traced

RECORDED = Path(__file__).parents[2] / "recorded_traces" / "nsys_2025_resnet50_h200.sqlite"
#: The form of the user guide's own list: a GPU that can be sampled, words for several, one that cannot.
LIST = (
    "Possible --gpu-metrics-devices values are:\\n\\t1: GPU PCI[0000:65:00.0]\\n\\tall: Select all supported GPUs\\n"
    "\\tcuda-visible: Select GPUs that match CUDA_VISIBLE_DEVICES\\n\\tnone: Disable GPU Metrics [Default]\\n\\n"
    "Some GPUs are not supported:\\n\\t0: GPU PCI[0000:17:00.0]"
)
REFUSED = "Insufficient privilege, see https://developer.nvidia.com/ERR_NVGPUCTRPERM"
HELP = "--cpuctxsw= --run-as= "


def program(folder, name, text):
    folder.mkdir(exist_ok=True)
    path = folder / name
    path.write_text("#!/bin/sh\n" + text)
    path.chmod(0o755)


@pytest.fixture
def put(tmp_path, monkeypatch):
    """Puts an nsys of these answers on PATH, and a sudo that lets it run as root or does not."""
    place = tmp_path / "bin"
    monkeypatch.setenv("PATH", f"{place}:{os.environ['PATH']}")
    monkeypatch.setattr(nsys_run.os, "geteuid", lambda: 1000)
    monkeypatch.delenv("AS_ROOT", raising=False)

    def put(flag, *, root_only=False, sudo=False, scheduling=False, offered=HELP):
        words = f"Possible --gpu metrics\\n{offered}{flag}"
        asked = f'[ -n "{"$AS_ROOT" if root_only else "yes"}" ] && printf "{LIST}" || echo "{REFUSED}"'
        state = "OK" if scheduling else "Fail"
        program(
            place,
            "nsys",
            f'case "$*" in\n"profile --help") printf -- "{words}";;\n*=help) {asked};;\n'
            f'"status --environment") echo "CPU Profiling Environment (process-tree): {state}";;\nesac\n',
        )
        may = (
            'shift; shift; AS_ROOT=1 exec "$@"' if sudo else "echo 'sudo: a password is required' >&2; exit 1"
        )
        program(place, "sudo", f"{may}\n")
        program(place, "id", 'case "$1" in -u) echo 1000;; -un) echo nano;; esac\n')
        return str(place / "nsys")

    return put


def in_shell(tmp_path):
    """P and F as the script of a board finds them, and what it left."""
    script = f'D={tmp_path}; N=$(command -v nsys)\n{nsys_run.SHELL}\necho "$P|$F"'
    ended = subprocess.run(["sh", "-c", script], capture_output=True, text=True, check=True)
    left = tmp_path / "unsampled"
    return (*ended.stdout.strip().split("|"), left.read_text() if left.exists() else "")


@pytest.mark.process
@pytest.mark.parametrize("flag", ["--gpu-metrics-devices", "--gpu-metrics-device"])
def test_the_flag_is_the_versions_own(put, tmp_path, flag):
    nsys = put(flag)
    started = nsys_run.here()
    assert started.program == (nsys,) and started.flags[-1] == f"{flag}=all" and not started.notes
    assert nsys_run.UNSCHEDULED in started.flags
    assert in_shell(tmp_path) == (nsys, f"{flag}=all --cpuctxsw=none", "")


@pytest.mark.process
def test_scheduling_is_on_where_nsys_says_that_it_can_be(put, tmp_path):
    put("--gpu-metrics-devices", scheduling=True)
    assert nsys_run.SCHEDULED in nsys_run.here().flags
    assert in_shell(tmp_path)[1].endswith("--cpuctxsw=process-tree")


@pytest.mark.process
def test_a_line_in_sudoers_lets_it_sample_and_the_program_runs_as_its_user(put, tmp_path):
    nsys = put("--gpu-metrics-devices", root_only=True, sudo=True)
    started = nsys_run.here()
    assert started.program == ("sudo", "-n", "-E", nsys) and not started.notes
    assert started.flags[-2:] == ("--gpu-metrics-devices=all", f"--run-as={getpass.getuser()}")
    found = in_shell(tmp_path)
    assert found == (f"sudo -n -E {nsys}", "--gpu-metrics-devices=all --run-as=nano --cpuctxsw=none", "")


@pytest.mark.process
def test_without_the_right_it_goes_on_and_says_the_line(put, tmp_path):
    nsys = put("--gpu-metrics-devices", root_only=True)
    started = nsys_run.here()
    assert started.program == (nsys,) and not any("metrics" in flag for flag in started.flags)
    (note,) = started.notes
    assert note.code == "I-PROF-9" and REFUSED in note.evidence
    assert note.fix.endswith(f"{getpass.getuser()} ALL=(root) NOPASSWD:SETENV: {nsys}")
    program_, flags, left = in_shell(tmp_path)
    assert (program_, flags.strip()) == (nsys, "--cpuctxsw=none")
    note = nsys_run.of_board(left)
    assert REFUSED in note.evidence and note.fix.endswith(f"nano ALL=(root) NOPASSWD:SETENV: {nsys}")
    assert trial.choose(trial.Trial(model="a"), "nsys").notes[0].code == "I-PROF-9"


@pytest.mark.process
def test_sudo_is_not_asked_where_the_program_would_run_as_root(put, tmp_path):
    nsys = put("--gpu-metrics-devices", root_only=True, sudo=True, offered="--cpuctxsw= ")
    assert nsys_run.here().program == (nsys,) and nsys_run.here().notes
    assert in_shell(tmp_path)[0] == nsys


@pytest.mark.process
def test_a_version_without_counters_is_started_without_them(put, tmp_path):
    nsys = put("--trace")
    started = nsys_run.here()
    assert started.program == (nsys,) and started.notes[0].code == "I-PROF-9"
    assert nsys in in_shell(tmp_path)[2]


def test_a_recorded_run_gives_the_distribution_of_each_counter():
    trace = read(RECORDED)
    found = {c.name: x for c, x in sampled(trace.samples, Rows(trace.spans))}
    for name in ("gpu0_sm_active", "gpu0_sm_issue", "gpu0_tensor_active"):
        assert len(found[name]) > 10 and 0 <= found[name].min() <= found[name].max() <= 1
    one = account(trace)
    figure = figures.counters([("resnet50", one)])
    assert [line.name for line in figure.data] == [
        f"resnet50 gpu0 {name}" for name in ("sm active", "sm issue", "tensor active")
    ]
    for line, name in zip(figure.data, ("sm_active", "sm_issue", "tensor_active"), strict=True):
        values = np.sort(found[f"gpu0_{name}"])
        assert line.y[-1] == 1 and np.all(np.diff(line.y) > 0) and np.all(np.diff(line.x) >= 0)
        middle = float(np.interp(0.5, line.y, line.x)) / 100
        assert middle == pytest.approx(float(np.median(values)), abs=0.02)
    assert any(
        getattr(part, "name", "") == "counters" for part in document(Traced((("resnet50", one),))).parts
    )


def test_a_trace_without_counters_has_no_figure():
    trace = read(RECORDED)
    one = account(trial.replace(trace, samples=None))
    assert isinstance(figures.counters([("a", one)]), Absent)
    assert not any(getattr(part, "name", "") == "counters" for part in document(Traced((("a", one),))).parts)


def test_the_tracers_samples_lie_on_the_queries_clock(tmp_path, monkeypatch):
    (tmp_path / "report.nsys-rep").touch()
    monkeypatch.setattr(nsys_run.shutil, "which", lambda name: f"/bin/{name}")
    monkeypatch.setattr(
        tracers.subprocess, "run", lambda command, **how: Path(command[5]).write_bytes(RECORDED.read_bytes())
    )
    tracer = tracers.NsysTracer()
    assert isinstance(tracer, Samples) and not isinstance(tracers.KinetoTracer(), Samples)
    plain = read(RECORDED)
    moved = tracers.aligned(plain)
    assert np.array_equal(tracer.readings(tmp_path).t_ns, moved.samples.t_ns)
    assert len(tracer.spans(tmp_path)) == len(moved.spans)


def test_samples_stand_beside_those_of_the_sensors():
    def readings(*rows):
        names = sorted({name for name, _, _ in rows})
        channels = tuple(Channel(n, "share", "gpu_board", "average", n) for n in names)
        index = np.array([names.index(name) for name, _, _ in rows], np.int16)
        return Readings(
            channels, np.array([t for _, t, _ in rows]), index, np.array([v for _, _, v in rows], float)
        )

    sensors = readings(("power", 1, 5.0), ("sm", 2, 0.1), ("power", 3, 6.0))
    both = readings(("sm", 2, 0.9), ("tensor", 4, 0.2)).beside(sensors)
    assert [c.name for c in both.channels] == ["sm", "tensor", "power"] and both.t_ns.tolist() == [1, 2, 3, 4]
    series = {c.name: both.series(c.name)[1].tolist() for c in both.channels}
    assert series == {"sm": [0.9], "tensor": [0.2], "power": [5.0, 6.0]}
    assert sensors.beside(None) is sensors


def test_a_result_keeps_what_its_tracer_sampled(tmp_path, monkeypatch):
    from edgescope.isolate import placement
    from edgescope.records import Spans
    from made_results import KINDS, result

    given = Readings(
        (Channel("gpu0_sm_active", "share", "gpu_board", "average", "x"),),
        *(np.zeros(1, t) for t in ("i8", "i2", "f8")),
    )
    tracer = SimpleNamespace(spans=lambda folder: Spans.none(), readings=lambda folder: given)
    monkeypatch.setattr(placement, "tracer_of", lambda trial: tracer)
    one = result(KINDS[0], 0, 10**9)
    found = placement.with_spans(trial.replace(one, trial=trial.replace(one.trial, tracer="nsys")), tmp_path)
    assert "gpu0_sm_active" in [channel.name for channel in found.readings.channels]
