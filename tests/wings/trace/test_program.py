"""What a program left: sampled stacks as spans, and what the injected file does within it, on made-up clocks.

Any program on a board: through an agent that is a child of this process, and over ssh.
"""

from __future__ import annotations

import importlib.machinery
import importlib.util
import json
import shutil
import sys
import threading
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import Any

import pytest

from edgescope.analysis.kernels.account import account
from edgescope.errors import UsageError
from edgescope.records import CLOCK_MARK
from edgescope.wings.remote.address import Address
from edgescope.wings.remote.board import opened
from edgescope.wings.trace import program
from edgescope.wings.trace.on_board import on

MS = 1_000_000


def functions(tmp_path: Path, samples: list[tuple[int, int]], end: int = 100, error: str = "") -> Any:
    left = {"pid": 7, "begin_ns": 0, "end_ns": end * MS, "torch_error": error, "sampler_s": 0.0}
    left["stacks"] = [["main", "a"], ["main", "b"], ["main"], ["main", "a", "c"]]
    left["samples"] = [(t * MS, index) for t, index in samples]
    (tmp_path / "functions-7.json").write_text(json.dumps(left))
    return program.collected(tmp_path)


def rows(trace: Any) -> list[tuple[str, float, float]]:
    c = trace.spans.columns
    return sorted(zip(trace.spans.named(), c["start_ns"] / MS, c["end_ns"] / MS, strict=True))


def test_a_gap_of_fifty_milliseconds_ends_what_was_open(tmp_path):
    assert rows(functions(tmp_path, [(10, 0), (59, 0)], 60)) == [("a", 5, 59.5), ("main", 5, 59.5)]
    apart = rows(functions(tmp_path, [(10, 0), (60, 0)], 61))
    assert apart == [("a", 5, 10), ("a", 60, 60.5), ("main", 5, 10), ("main", 60, 60.5)]
    late = rows(functions(tmp_path, [(50, 2)], 100))
    assert late == [("main", 50, 50)], "it was seen once, long after the beginning and long before the end"


def test_a_stack_goes_on_as_far_as_it_is_the_same(tmp_path):
    found = functions(tmp_path, [(10, 0), (20, 3), (30, 1), (40, 2)], 50)
    assert rows(found) == [("a", 5, 25), ("b", 25, 35), ("c", 15, 25), ("main", 5, 45)]
    assert set(found.spans.columns["process"]) == set(found.spans.columns["thread"]) == {7}
    assert found.notes == () and found.clock == "monotonic"


def test_what_torch_could_not_do_and_a_program_that_left_nothing_are_said(tmp_path):
    told = functions(tmp_path, [(10, 0)], error="ImportError: x").notes
    assert [(n.code, n.evidence) for n in told] == [("W-PROF-11", "ImportError: x")]
    (tmp_path / "functions-7.json").unlink()
    none = program.collected(tmp_path)
    assert [n.code for n in none.notes] == ["W-PROF-12"] and len(none.spans) == 0


def test_the_injected_folder_is_first_on_the_path(tmp_path):
    env = program.launch(tmp_path, "/a:/b", 2.5).env
    assert env["PYTHONPATH"] == f"{program.INJECT}:/a:/b"
    assert (env[program.FOLDER], env[program.SECONDS]) == (str(tmp_path), "2.5")
    assert program.launch(tmp_path, "").env["PYTHONPATH"] == str(program.INJECT)


@pytest.fixture
def injected(monkeypatch, tmp_path) -> ModuleType:
    """The injected file as a module; without its variables it does nothing but import what it hides."""
    for name in (program.FOLDER, program.SECONDS):
        monkeypatch.delenv(name, raising=False)
    before = list(sys.meta_path)
    spec = importlib.util.spec_from_file_location(
        "edgescope.wings.trace.inject.sitecustomize", program.INJECT / "sitecustomize.py"
    )
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    assert sys.meta_path == before and module.state == {}
    module.FOLDER = str(tmp_path)
    return module


class Clock:
    """Seconds that pass only while one sleeps."""

    def __init__(self) -> None:
        self.now = 100.0

    def monotonic(self) -> float:
        return self.now

    def monotonic_ns(self) -> int:
        return round(self.now * 1e9)

    def thread_time(self) -> float:
        return self.now / 10

    def sleep(self, seconds: float) -> None:
        self.now += seconds


def test_samples_are_taken_every_five_milliseconds_until_the_time_is_over(injected, monkeypatch):
    code = [SimpleNamespace(co_name=n, co_qualname=n, co_filename=f"/x/{n}.py") for n in ("inner", "outer")]
    frame = SimpleNamespace(f_code=code[0], f_back=SimpleNamespace(f_code=code[1], f_back=None))
    monkeypatch.setattr(injected, "time", Clock())
    frames = {threading.main_thread().ident: frame}
    monkeypatch.setattr(injected, "sys", SimpleNamespace(_current_frames=lambda: frames))
    injected.SECONDS = 0.012
    injected.sample()
    assert injected.state["samples"] == [(100_000_000_000 + k * 5_000_000, 0) for k in range(3)]
    assert injected.state["names"] == {("outer (outer.py)", "inner (inner.py)"): 0}
    assert injected.state["sampler_s"] == pytest.approx(0.0015)
    injected.state["ended"] = True
    injected.SECONDS = 0.0
    injected.sample()
    assert injected.state["samples"] == [], "a program that has ended is not looked at"


def test_without_a_limit_samples_are_taken_until_the_program_ends(injected, monkeypatch):
    clock = Clock()
    monkeypatch.setattr(injected, "time", clock)

    def frames() -> dict[int, Any]:
        injected.state["ended"] = clock.now > 100.02
        return {}

    monkeypatch.setattr(injected, "sys", SimpleNamespace(_current_frames=frames))
    injected.sample()
    assert len(injected.state["samples"]) == 6 and injected.state["names"] == {(): 0}


def test_everything_is_written_at_the_end(injected, monkeypatch, tmp_path):
    monkeypatch.setattr(injected, "time", Clock())
    names = {("main",): 1, ("main", "a"): 0}
    injected.state |= {
        "begin_ns": 5,
        "names": names,
        "samples": [(6, 1), (7, 0)],
        "thread": threading.Thread(),
    }
    monkeypatch.setattr(injected.state["thread"], "join", lambda seconds: None)
    injected.end()
    (path,) = tmp_path.glob("functions-*.json")
    left = json.loads(path.read_text())
    assert (left["begin_ns"], left["end_ns"], left["stacks"]) == (
        5,
        100_000_000_000,
        [["main", "a"], ["main"]],
    )
    assert (left["samples"], left["sampler_s"], left["torch_error"]) == ([[6, 1], [7, 0]], 0.0, "")
    assert injected.state["ended"] is True

    injected.state["torch"] = SimpleNamespace(stop=lambda: 1 / 0)
    monkeypatch.setattr(injected, "mark", lambda: None)
    injected.end()
    assert json.loads(path.read_text())["torch_error"] == "ZeroDivisionError: division by zero"


def test_torch_is_profiled_once_it_is_imported(injected, monkeypatch):
    finder = injected.AfterTorch()
    monkeypatch.setattr(sys, "meta_path", [finder, *sys.meta_path])
    assert finder.find_spec("json") is None and finder in sys.meta_path
    spec = importlib.machinery.ModuleSpec(
        "torch", SimpleNamespace(create_module=lambda s: s, exec_module=list.append)
    )
    monkeypatch.setattr(injected.importlib.util, "find_spec", lambda name: spec)
    assert finder.find_spec("torch") is spec and finder not in sys.meta_path
    assert isinstance(spec.loader, injected.Loader) and spec.loader.create_module(spec) is spec
    done: list[Any] = []
    loader = injected.Loader(SimpleNamespace(exec_module=done.append))
    monkeypatch.setattr(injected, "start_torch", lambda: done.append("started"))
    loader.exec_module("torch")
    assert done == ["torch", "started"] and "torch_error" not in injected.state
    monkeypatch.setattr(injected, "start_torch", lambda: 1 / 0)
    loader.exec_module("torch")
    assert injected.state["torch_error"].startswith("ZeroDivisionError")


class FakeTorch:
    """torch as far as a recording uses it: what was asked of it, in order."""

    def __init__(self, gpu: bool) -> None:
        self.calls: list[str] = []
        made = self
        activity = SimpleNamespace(CPU="cpu", CUDA="cuda")

        class Range:
            def __init__(self, name: str) -> None:
                self.name = name

            def __enter__(self) -> None:
                made.calls.append(self.name)

            def __exit__(self, *_: object) -> None:
                pass

        def profile(activities: list[str]) -> Any:
            made.calls.append("+".join(activities))
            names = ("start", "stop")
            told = {name: (lambda name=name: made.calls.append(name)) for name in names}
            return SimpleNamespace(
                **told, export_chrome_trace=lambda path: made.calls.append(Path(path).name)
            )

        self.profiler = SimpleNamespace(ProfilerActivity=activity, profile=profile, record_function=Range)
        self.cuda = SimpleNamespace(is_available=lambda: gpu)


@pytest.mark.parametrize("gpu", [False, True])
@pytest.mark.parametrize(("seconds", "free", "timed"), [(0.0, True, 0), (2.5, True, 1), (2.5, False, 0)])
def test_torch_records_for_its_seconds_between_five_marks_at_each_end(
    injected, monkeypatch, gpu, seconds, free, timed
):
    torch, alarms = FakeTorch(gpu), []
    monkeypatch.setitem(sys.modules, "torch", torch)
    monkeypatch.setattr(injected, "time", Clock())
    taken = SimpleNamespace(
        SIGALRM=14, SIG_DFL=0, ITIMER_REAL=7,
        getsignal=lambda number: 0 if free else print,
        signal=lambda number, act: alarms.append(act),
        setitimer=lambda which, after: alarms.append((which, after)),
    )  # fmt: skip
    monkeypatch.setattr(injected, "signal", taken)
    injected.SECONDS = seconds
    injected.start_torch()
    marks = ["edgescope clock 100000000000"] * 5
    assert torch.calls == ["cpu+cuda" if gpu else "cpu", "start", *marks]
    assert alarms[1:] == [(7, 2.5)] * timed
    (alarms[0] if timed else injected.stop_torch)()
    assert torch.calls[7:12] == marks and torch.calls[12] == "stop" and torch.calls[13].startswith("kineto-")
    injected.stop_torch()
    assert len(torch.calls) == 14, "it stops once"


def test_a_sitecustomize_that_is_hidden_is_run(injected, monkeypatch, tmp_path):
    (tmp_path / "sitecustomize.py").write_text("import sys\nsys.hidden_was_run = __name__\n")
    monkeypatch.setattr(sys, "path", [str(program.INJECT), str(tmp_path)])
    injected.chain()
    assert vars(sys).pop("hidden_was_run") == "sitecustomize"
    monkeypatch.setattr(sys, "path", [str(program.INJECT)])
    injected.chain()
    assert "hidden_was_run" not in vars(sys)


@pytest.mark.slow
def test_what_torch_recorded_is_laid_on_the_clock_of_the_functions(tmp_path):
    events = [
        {
            "ph": "X",
            "cat": "user_annotation",
            "name": f"{CLOCK_MARK}5000000",
            "pid": 7,
            "tid": 7,
            "ts": 1000,
            "dur": 1,
        },
        {"ph": "X", "cat": "cpu_op", "name": "aten::add", "pid": 7, "tid": 7, "ts": 3000, "dur": 2000},
    ]
    page = {"schemaVersion": 1, "traceEvents": events}
    for number in (7, 8):
        (tmp_path / f"kineto-{number}.json").write_text(json.dumps(page))
    found = functions(tmp_path, [(10, 2)], 20)
    assert rows(found) == [("aten::add", 7, 9), ("aten::add", 7, 9), ("main", 5, 15)]
    assert found.notes == ()
    (tmp_path / "kineto-8.json").write_text(json.dumps(page | {"traceEvents": events[1:]}))
    assert [n.code for n in program.collected(tmp_path).notes] == ["W-PROF-8"]


RECORDED = Path(__file__).parents[2] / "recorded_traces"
HERE = Address("board", agent="started directly")
PROGRAM = """
import time
def decode():
    end = time.monotonic() + 0.3
    while time.monotonic() < end:
        sum(range(1000))
decode()
print("its own output")
raise SystemExit(3)
"""


@pytest.mark.slow
def test_the_sampler_goes_with_the_program_and_its_trace_comes_back(behind, capsys):
    one = behind()
    (one.home / "prog.py").write_text(PROGRAM)
    with opened(HERE, one.argv) as board:
        trace = on(board, [sys.executable, "prog.py"])  # in the home of the board's user
    assert "its own output" in capsys.readouterr().out
    assert trace.clock == "monotonic" and trace.source == "a program on ssh://board"
    assert [n.code for n in trace.notes] == ["W-PROF-13"]
    found = {n.name: n for n in account(trace).functions}
    decode = next(n for name, n in found.items() if name.startswith("decode"))
    assert 0.1e9 < decode.total_ns < 2e9
    begin, end = trace.spans.columns["start_ns"].min(), trace.spans.columns["end_ns"].max()
    inside = (trace.samples.t_ns >= begin) & (trace.samples.t_ns <= end)
    assert inside.any(), "the board's sensors are on the same clock"
    assert not list((one.home / "cache").rglob("left.tar"))


@pytest.mark.process
def test_nsys_is_taken_where_the_board_has_it(behind):
    one = behind()
    bin_, report = one.home / "bin", RECORDED / "nsys_2025_resnet50_h200.sqlite"
    bin_.mkdir()
    (bin_ / "nsys").write_text(
        f'#!/bin/sh\nwhile [ "$1" != -o ]; do shift; done\ncp {report} "$2.sqlite"\nshift 2\nexec "$@"\n'
    )
    (bin_ / "nsys").chmod(0o755)
    argv = [f"PATH={bin_}:/usr/bin:/bin" if w.startswith("PATH=") else w for w in one.argv]
    with opened(HERE, argv) as board:
        trace = on(board, ["true"], 2.0)
    assert trace.source.startswith("Nsight Systems") and trace.source.endswith("on ssh://board")
    assert {n.code for n in trace.notes} == {"I-PROF-6", "I-PROF-9"} and len(account(trace).inferences) == 3


@pytest.mark.process
def test_a_program_that_is_not_there_is_named(behind):
    with opened(HERE, behind().argv) as board, pytest.raises(UsageError, match=r"E-PROF-8.*ssh://board"):
        on(board, ["no_such_program"])


@pytest.mark.skipif(shutil.which("ssh") is None, reason="no ssh client")
@pytest.mark.slow
def test_the_verb_over_ssh(tmp_path, behind, monkeypatch, capsys):
    server_of = pytest.importorskip("ssh_server").Server
    from edgescope.cli.main import main
    from edgescope.wings.remote import address

    one = behind()
    (tmp_path / "keys").mkdir()
    with server_of(tmp_path / "keys", one.environment) as server:
        monkeypatch.setenv(address.SSH, server.client())
        url = f"ssh://user@127.0.0.1:{server.port}?python={sys.executable}"
        assert main(["trace", "--on", url, "--", sys.executable, "-c", "import time; time.sleep(0.2)"]) == 0
    assert "<module>" in capsys.readouterr().out
