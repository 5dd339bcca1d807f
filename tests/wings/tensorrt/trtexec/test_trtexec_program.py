"""Finding and running the program: real processes, real time-outs."""

import os
import signal
import sys
import time

import pytest

from edgescope.errors import DeviceError, UnavailableError
from edgescope.wings.tensorrt.trtexec import program
from edgescope.wings.tensorrt.trtexec.program import HERE


@pytest.fixture(autouse=True)
def nothing_installed(monkeypatch, tmp_path):
    monkeypatch.delenv(program.VARIABLE, raising=False)
    monkeypatch.setenv("PATH", str(tmp_path / "bin"))
    monkeypatch.setattr(program, "JETPACK", tmp_path / "jetpack" / "trtexec")


def test_it_is_looked_for_in_four_places_in_order(monkeypatch, tmp_path, trtexec):
    with pytest.raises(UnavailableError, match="E-TRTX-1"):
        HERE.find(None)
    made = {name: tmp_path / name / "trtexec" for name in ("jetpack", "bin", "variable", "option")}
    for name, path in made.items():
        path.parent.mkdir()
        path.write_bytes(trtexec("8201").read_bytes())
        path.chmod(0o755)
        if name == "variable":
            monkeypatch.setenv(program.VARIABLE, str(path))
        assert HERE.find(str(path) if name == "option" else None) == str(path)


def test_a_path_that_was_named_is_not_replaced_by_another(monkeypatch, tmp_path):
    monkeypatch.setenv(program.VARIABLE, str(tmp_path / "missing"))
    with pytest.raises(UnavailableError, match="missing"):
        HERE.find(None)


@pytest.mark.process
@pytest.mark.parametrize(("version", "told"), [("8001", "8.0.1"), ("8502", "8.5.2"), ("110100", "11.1.0.26")])
def test_the_survey(trtexec, version, told):
    tool = HERE.survey(str(trtexec(version)))
    assert tool.version == told
    assert tool.release == tuple(int(n) for n in told.split(".")[:2])
    assert (tool.compute_capability, tool.device) == ("8.7", "Fake Orin")
    assert ("--fp16" in tool.flags) == (version != "110100")


@pytest.mark.process
@pytest.mark.parametrize(
    "script", ["exit 3", "echo hello", "echo '&&&& RUNNING TensorRT.trtexec [TensorRT v8201]'"]
)
def test_what_is_no_trtexec_is_told(tmp_path, script):
    path = tmp_path / "trtexec"
    path.write_text(f"#!/bin/sh\n{script}\n")
    path.chmod(0o755)
    with pytest.raises(UnavailableError, match="E-TRTX-2"):
        HERE.survey(str(path))


@pytest.mark.process
def test_a_file_that_cannot_run_here(tmp_path):
    path = tmp_path / "trtexec"
    path.write_bytes(b"\x7fELF not for this machine")
    path.chmod(0o755)
    with pytest.raises(UnavailableError, match="E-TRTX-1"):
        HERE.run([str(path)], timeout_s=5)


def python(code, **keys):
    return HERE.run([sys.executable, "-c", code], **({"timeout_s": 20} | keys))


@pytest.mark.process
def test_lines_carry_the_time_they_arrived():
    before = time.monotonic_ns()
    ran = python(
        "import sys, time\nprint('[I] first', flush=True)\ntime.sleep(0.3)\nsys.stderr.write('[E] last, no newline')"
    )
    times = [t for t, _ in ran.lines]
    assert [text for _, text in ran.lines] == ["[I] first", "[E] last, no newline"]
    assert before < times[0] < times[1] < time.monotonic_ns()
    assert times[1] - times[0] >= 0.25e9
    assert ran.log.errors == ("last, no newline",)
    assert ran.arrival("first") == times[0]
    assert ran.arrival("second") is None


@pytest.mark.process
def test_its_memory_is_its_own():
    ran = python("x = bytearray(60_000_000)\nprint(len(x), flush=True)\nimport time; time.sleep(0.1)")
    assert 60_000_000 < ran.peak_bytes < 400_000_000


@pytest.mark.process
def test_a_program_that_never_ends_is_killed_with_what_it_wrote_last():
    begin = time.monotonic()
    with pytest.raises(DeviceError, match=r"E-TRTX-5.*wrote last: (\d+)") as caught:
        python("import os, time\nprint(os.getpid(), flush=True)\ntime.sleep(60)", timeout_s=1.0)
    assert time.monotonic() - begin < 15
    pid = int(str(caught.value).split("wrote last: ")[1].split(")")[0])
    with pytest.raises(ProcessLookupError):
        os.kill(pid, 0)


@pytest.mark.process
def test_a_signal_is_a_negative_code():
    assert python("import os; os.kill(os.getpid(), 9)").code == -signal.SIGKILL


@pytest.mark.process
def test_a_long_build_gives_signs_of_life(monkeypatch, capfd):
    monkeypatch.setattr(program, "BEAT_S", 0.2)
    python("import time; time.sleep(0.9)", what="trtexec: build net fp16", quiet=False)
    assert capfd.readouterr().err.count("trtexec: build net fp16: ") >= 2


@pytest.mark.process
def test_passed_needs_both_the_word_and_the_code():
    assert python("print('&&&& PASSED TensorRT.trtexec [TensorRT v8201]')").passed
    assert not python("print('&&&& PASSED TensorRT.trtexec [TensorRT v8201]'); raise SystemExit(1)").passed
    assert not python("print('fine')").passed
