"""edgescope trace: files, series of files, SQL, a program that knows nothing of it, and a trial in two phases."""

import json
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace

import pytest

from edgescope.cli.main import main
from edgescope.errors import ExitCode
from edgescope.records import Absent, Measured, Status, Trial, Trust, Verdict
from edgescope.report import terminal
from edgescope.wings.trace import cli as verb
from edgescope.wings.trace.page import document
from edgescope.wings.trace.verb import Traced, trace
from making import result

RECORDED = Path(__file__).parents[2] / "recorded_traces"
NSYS = str(RECORDED / "nsys_2025_resnet50_h200.sqlite")
PROGRAM = """
import time
def decode():
    end = time.monotonic() + 0.15
    while time.monotonic() < end:
        sum(range(1000))
def detect():
    time.sleep(0.08)
for _ in range(2):
    decode()
    detect()
print("its own output")
"""


@pytest.mark.process
def test_reading_a_file_loads_neither_what_compares_runs_nor_duckdb():
    code = f"import sys; from edgescope.cli.main import main; main(['trace', {NSYS!r}]);"
    code += "heavy = {'duckdb', 'pandas', 'plotly', 'edgescope.stats', 'edgescope.analysis.run.usage'};"
    code += "print(sorted(heavy & set(sys.modules)))"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert done.stdout.splitlines()[-1] == "[]"


def test_a_file_prints_its_account(capsys):
    assert main(["trace", NSYS]) == 0
    said = capsys.readouterr().out
    assert "3 inferences: ranges called 'infer'" in said and "345 launches and 1 waits" in said
    assert main(["trace", NSYS, "-v"]) == 0
    said = capsys.readouterr().out
    for words in (
        "T = EC + CS",
        "gpu0_tensor_active",
        "queue (call's end",
        "idle: host late",
        "cudaLaunchKernel_v7000",
    ):
        assert words in said
    assert main(["trace", NSYS, "--json"]) == 0
    page = json.loads(capsys.readouterr().out)
    (one,) = page["traces"].values()
    assert one["budget"]["closure"] > 0.98 and one["launches"]["kernel"]["count"] == 1026
    assert (
        one["gpus"][0]["busy_ns"] + one["gpus"][0]["idle_host_ns"] + one["gpus"][0]["idle_launch_ns"]
        == one["gpus"][0]["span_ns"]
    )


def test_several_files_are_a_series(capsys):
    assert main(["trace", NSYS, NSYS]) == 0
    assert "EC never becomes clearly longer" in capsys.readouterr().out


@pytest.mark.slow
def test_sql_and_other_formats(capsys, tmp_path):
    assert (
        main(["trace", NSYS, "--query", "SELECT count(*) AS kernels FROM spans WHERE kind = 'kernel'"]) == 0
    )
    assert "1026" in capsys.readouterr().out
    assert main(["trace", NSYS, "--output", str(tmp_path / "t.json.gz")]) == 0
    assert main(["trace", str(tmp_path / "t.json.gz"), "--kind", "kineto"]) == 0


@pytest.mark.process
def test_what_cannot_be_traced_is_refused(capsys, tmp_path):
    assert main(["trace", "resnet50", "--on", "ssh://nano"]) == 3
    assert "E-PROF-9" in capsys.readouterr().err
    assert main(["trace", "--", str(tmp_path / "missing")]) == 2
    assert "E-PROF-8" in capsys.readouterr().err


@pytest.mark.slow
def test_a_program_that_knows_nothing_of_it(tmp_path, capfd):
    (tmp_path / "prog.py").write_text(PROGRAM)
    found = trace(program=[sys.executable, str(tmp_path / "prog.py")])
    assert "its own output" in capfd.readouterr().out
    ((_, one),) = found.accounts
    functions = {n.name: n for n in one.functions}
    decode = next(n for name, n in functions.items() if name.startswith("decode"))
    detect = next(n for name, n in functions.items() if name.startswith("detect"))
    assert decode.total_ns + sum(n.total_ns for k, n in functions.items() if "genexpr" in k) > 0.03e9
    assert detect.total_ns > 0.03e9 and found.conclusive
    facts = one.trace.facts["program"]
    assert (
        facts["exit_code"] == 0 and 0 < facts["on_cpu_ns"] <= facts["wall_ns"] * 4 and facts["threads"] >= 2
    )
    assert one.trace.samples is not None and len(one.trace.samples.t_ns)


@pytest.mark.process
def test_a_program_that_fails_is_no_success(capfd):
    assert main(["trace", "--json", "--", "sh", "-c", "exit 3"]) == 1
    assert '"W-PROF-13"' in capfd.readouterr().out


@pytest.mark.process
def test_its_exit_code_is_told_and_other_programs_have_what_the_kernel_knows():
    ((_, one),) = trace(program=["sh", "-c", "exit 3"]).accounts
    assert {n.code for n in one.trace.notes} == {"W-PROF-12", "W-PROF-13"}
    assert one.trace.facts["program"]["exit_code"] == 3


@pytest.mark.parametrize(
    ("share", "code", "conclusive"), [(0.95, None, True), (0.5, "W-PROF-7", False), (2.0, "W-PROF-14", False)]
)
def test_a_profiler_that_disturbs_draws_no_conclusion(share, code, conclusive):
    trial = Trial(model="null", backend="null")
    clean = result(trial, metrics={"throughput_sps": Measured(100.0, "samples/s")})
    slow = result(trial, metrics={"throughput_sps": Measured(100.0 * share, "samples/s")})
    found = Traced((), clean, slow)
    assert found.perturbation.value == pytest.approx(share) and found.conclusive is conclusive
    assert [w.code for w in found.warnings] == ([code] if code else [])


@pytest.mark.parametrize("phase", [0, 1])
def test_a_slow_second_phase_on_a_disturbed_machine_is_not_laid_on_the_profiler(phase):
    trial, busy = Trial(model="null", backend="null"), Verdict(Trust.DISTURBED, ("others used 40 %",))
    runs = [
        result(
            trial,
            metrics={"throughput_sps": Measured(speed, "samples/s")},
            verdict=busy if n == phase else Verdict(Trust.CLEAN),
        )
        for n, speed in enumerate((100.0, 50.0))
    ]
    (warning,) = Traced((), *runs).warnings
    assert warning.code == "W-PROF-7" and busy.evidence[0] in warning.evidence
    assert warning.fix.startswith("edgescope doctor")


@pytest.mark.parametrize(
    ("share", "status", "traced", "code"),
    [
        (0.95, Status.OK, True, ExitCode.OK),
        (0.5, Status.OK, True, ExitCode.OK),
        (2.0, Status.OK, True, ExitCode.UNDECIDED),
        (0.5, Status.OK, False, ExitCode.FAILED),
        (0.5, Status.UNSUPPORTED, True, ExitCode.UNAVAILABLE),
    ],
)
def test_the_exit_code_says_whether_the_account_concludes(share, status, traced, code):
    trial = Trial(model="null", backend="null")
    clean = result(trial, metrics={"throughput_sps": Measured(100.0, "samples/s")})
    slow = result(trial, status=status, metrics={"throughput_sps": Measured(100.0 * share, "samples/s")})
    accounts = trace(NSYS).accounts if traced else ()
    assert verb._exit_code(Traced(accounts, clean, slow)) is code


def slowed(rate, share=0.5, batch=1, accounts=None):
    """A trial whose trace is the recorded one: 3 inferences with 2,696,368 ns of work on the GPU."""
    trial = Trial(model="null", backend="null", batch=batch)
    runs = (result(trial, metrics={"throughput_sps": Measured(r, "samples/s")}) for r in (rate, rate * share))
    return Traced(trace(NSYS).accounts if accounts is None else accounts, *runs)


@pytest.mark.parametrize(
    ("rate", "batch", "limit"), [(100, 1, "launch-bound"), (1000, 1, "its kernels"), (1000, 4, "launch")]
)
def test_a_slow_profiler_leaves_what_kernels_tell_of_the_clean_run(rate, batch, limit, capsys):
    found = slowed(rate, batch=batch)
    assert found.clean_busy.value == pytest.approx(2_696_368e-9 / 3 * rate / batch)
    assert found.concludes and not found.conclusive
    terminal.show(document(found))
    said = " ".join(capsys.readouterr().out.split())
    assert f"What limits it: {limit}" in said and f"{found.clean_busy.value:.0%}" in said


def test_nothing_is_carried_over_where_kernels_cannot_have_been_the_same(monkeypatch):
    assert isinstance(slowed(100, share=0.95).clean_busy, Absent), "the account itself answers"
    assert isinstance(slowed(100, share=1.5).clean_busy, Absent), "a profiler makes nothing faster"
    assert isinstance(slowed(2000).clean_busy, Absent), "kernels longer than the inferences that held them"
    assert isinstance(slowed(100, accounts=()).clean_busy, Absent)
    clocks = iter([Measured(1.98e9, "Hz"), Measured(1.2e9, "Hz")])
    monkeypatch.setattr("edgescope.wings.trace.verb._clock", lambda run: next(clocks))
    assert "1980 MHz" in slowed(100).clean_busy.reason


@pytest.mark.parametrize("backend", ["onnxruntime", "openvino"])
@pytest.mark.slow
def test_a_trial_in_two_phases(backend, tmp_path, capsys, trials_here):
    pytest.importorskip(backend)
    flags = [
        "--backend",
        backend,
        "--duration",
        "300ms",
        "--batch",
        "16",
        "--store",
        str(tmp_path / "s"),
        "--json",
    ]
    assert main(["trace", "lenet5", *flags]) in (0, 1, 7)
    page = json.loads(capsys.readouterr().out)
    ((_, one),) = page["traces"].items()
    assert page["perturbation"]["value"] > 0
    assert one["inferences"]["how"] == "the units of work that edgescope noted"
    assert one["clock"] == "monotonic"
    if backend == "onnxruntime":
        assert 0.2 < one["operating"] <= 1.0
    named = one["facts"]["layers"]
    convolutions = {named[n["name"]] for n in one["operators"] if n["name"].startswith("Conv")}
    assert main(["layers", "lenet5", *flags[:2], *flags[4:]]) == 0
    (engine,) = json.loads(capsys.readouterr().out)["engines"]
    of_layers = {row["layer"]["name"]: row["layer"]["kind"] for row in engine["layers"]}
    assert convolutions == {name for name, kind in of_layers.items() if kind.startswith("Conv")}
    assert len(convolutions) == 2 and set(named.values()) <= set(of_layers)


class Scripted:
    """Cells whose trials end as a script says, by their tracer; notes which ran."""

    def __init__(self, ends):
        self.ends, self.ran, self.told = ends, [], []
        self.tell = self.told.append
        self.builds = SimpleNamespace(build=lambda trials: None)

    def cells(self, store):
        return self

    def left(self, trials):
        return None

    def expect(self, trials):
        pass

    def run(self, trial, limit_s=None):
        self.ran.append(trial.tracer)
        status = self.ends.get(trial.tracer, Status.OK)
        return result(
            trial, status=status, reason="" if status == Status.OK else "E-RUN-2: it died of SIGSEGV"
        )


@pytest.mark.parametrize(
    ("ends", "asked", "ran", "codes"),
    [
        ({}, "", ["none", "cupti"], []),
        ({"cupti": Status.CRASHED}, "", ["none", "cupti", "kineto"], ["W-PROF-18"]),
        ({"cupti": Status.CRASHED}, "cupti", ["none", "cupti"], []),
        ({"cupti": Status.OOM}, "", ["none", "cupti"], []),
        (
            {"cupti": Status.FAILED, "kineto": Status.UNSUPPORTED},
            "",
            ["none", "cupti", "kineto"],
            ["W-PROF-18", "W-PROF-18", "W-PROF-10"],
        ),
        ({"none": Status.CRASHED}, "", ["none"], []),
    ],
)
def test_a_profiler_that_the_trial_does_not_survive_is_replaced_by_the_next(
    ends, asked, ran, codes, monkeypatch, tmp_path
):
    monkeypatch.setattr("edgescope.wings.trace.trial.Step.missing", lambda step: "")
    trial = Trial(model="null", backend="torch_eager", device="cuda")
    cells = Scripted(ends)
    found = trace(trial, profiler=asked, store=tmp_path, setup=cells)
    assert cells.ran == ran and [note.code for note in found.chosen.notes] == codes
    assert all("SIGSEGV" in note.evidence for note in found.chosen.notes if note.code == "W-PROF-18")
    assert (found.profiled is None) == (len(codes) == 3 or "none" in ends)
    assert [step.position for step in cells.told] == [*range(1, len(ran) + 1)]
    assert cells.told[0].total == 2 and len(cells.told[0].ahead) == 1


@pytest.mark.slow
def test_a_page_has_the_time_axis_and_the_cdfs(tmp_path):
    page = tmp_path / "page.html"
    assert main(["trace", NSYS, "--output", str(page)]) == 0
    text = page.read_text()
    for words in (
        "Host, GPU and sensors over time",
        "GPU: kernels",
        "gpu0_sm_active",
        "EC and CS of the inferences",
    ):
        assert words in text
