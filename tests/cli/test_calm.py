"""What a verb prints without -v: the answer first, at most 12 lines of 80 columns; -v holds what was left out."""

import pytest

from edgescope.analysis.cells.objective import wanted
from edgescope.analysis.run import summary
from edgescope.cli.main import main
from edgescope.errors import ExitCode
from edgescope.isolate.fresh import Limits
from edgescope.records import Absent, Measured, Status, Trial, Trust, Verdict, Verification, Window
from edgescope.report import terminal, variants
from edgescope.report.chapter import chapter
from edgescope.report.result import document, several
from edgescope.runner.run import ExperimentRunner
from edgescope.runner.setup import Setup
from edgescope.search import candidates
from edgescope.store.results import Store
from edgescope.wings.recommend import recommendation
from edgescope.wings.recommend.recommendation import recommend
from making import MACHINE, queries, result

pytestmark = pytest.mark.network

US = 1_000
QUICK = ["--backend", "null", "--warmup", "0ms", "--duration", "50ms"]
LONG = (
    "the outputs differ from those of the reference by more than what rounding explains, in every one of them"
)


@pytest.fixture(autouse=True)
def own_folder(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("EDGESCOPE_STORE", str(tmp_path / "store"))
    monkeypatch.delenv("COLUMNS", raising=False)


def calm(text: str) -> list[str]:
    lines = text.splitlines()
    assert lines and len(lines) <= terminal.LINES, text
    assert max(map(len, lines)) <= terminal.WIDTH, text
    return lines


def measured(label: tuple[str, str], us: int, replicate: int, **keys):
    """A replicate of a variant that takes so long, with a tail."""
    trial = Trial(model="efficientnet_lite0", backend=label[0], precision=label[1], replicate=replicate)
    share = Measured(0.938, "1", 0.908, 0.958, 370)
    check = Verification(
        True, "top1_agreement", {"top1_agreement": share}, 0.75, f"top-1 agreement 93.8 %; {LONG}"
    )
    rows = queries(400, us * US + replicate)
    metrics = summary.metrics(rows, Window(10, 50, 10_000_000, 50_000_000)) | {
        "latency_p50_s": Measured(us * 1e-6, "s", n=900),
        "latency_p99_s": Measured(us * 1.5e-6, "s", n=900),
        "throughput_sps": Measured(1e6 / us, "samples/s"),
        "peak_rss_bytes": Measured(4e8, "bytes"),
        "power_w": Absent(f"no power sensor: {LONG}"),
    }
    return result(trial, **({"verification": check, "queries": rows, "metrics": metrics} | keys))


def many():
    """Fourteen variants in three replicates: some wrong, some failed, some disturbed."""
    engines = ("torch_eager", "torch_compile", "onnxruntime", "openvino", "litert", "tensorrt", "trtexec")
    wrong = {"status": Status.WRONG_OUTPUT, "verification": Verification(False, "x", {}, 0.1, LONG)}
    failed = {"status": Status.UNSUPPORTED, "reason": f"E-NAME-2: {LONG}. Try: pip install", "queries": None}
    noisy = {
        "verdict": Verdict(Trust.DISTURBED, ("other processes used 72.0% of all cores (limit 5%)", LONG))
    }
    found = []
    for i, engine in enumerate(engines):
        for j, precision in enumerate(("fp32", "int8")):
            keys = {3: wrong, 4: failed, 6: noisy}.get(i if j else 0, {})
            found += [measured((engine, precision), 2000 - 90 * (2 * i + j), n, **keys) for n in range(3)]
    return found


@pytest.mark.slow
def test_bench_is_one_card(capsys, trials_here):
    assert main(["bench", "null", *QUICK, "--processes", "2"]) in (0, 1)  # 1: a busy machine made it unstable
    lines = calm(capsys.readouterr().out)
    assert lines[0].startswith("null  null fp32 b1") and any(line.startswith("latency") for line in lines)
    assert {"workers", "startup", "engine"} <= {line.split("  ")[0] for line in lines}


@pytest.mark.slow
def test_replicates_are_one_row_each(capsys, trials_here):
    assert main(["bench", "null", *QUICK, "--replicates", "3"]) in (0, 1)
    assert calm(capsys.readouterr().out)[0].split() == ["Measured", "null", "null", "fp32", "b1"]


@pytest.mark.slow
def test_the_grid_ends_in_counts_and_next_steps(capsys, trials_here):
    main(["sweep", "--model", "null", "--batch", "1,2,4", *QUICK])
    said = capsys.readouterr()
    assert calm(said.out) and "[3/3] b" in said.err
    main(["sweep", "--model", "null", "--batch", "1,2,4", *QUICK, "-v"])
    assert calm(capsys.readouterr().out)


@pytest.mark.slow
def test_stored_cells_are_recommended_and_compared(tmp_path, capsys):
    store = Store(tmp_path / "store")
    for one in many():
        store.save(one)
    for flags in (
        [],
        ["--constraint", "p99<=2ms", "--constraint", "memory<=2GB"],
        ["--constraint", "p50<=1us"],
    ):
        main(["recommend", "efficientnet_lite0", "--objective", "latency", *flags])
        lines = calm(capsys.readouterr().out)
        assert lines[1].startswith(("Use  ", "No pick"))
    cells = sorted({r.trial.cell for r in store.results() if r.status is Status.OK})
    assert main(["compare", *cells[:2]]) in (ExitCode.OK, ExitCode.UNDECIDED)
    assert " is " in calm(capsys.readouterr().out)[0]


class Scripted:
    """A runner that answers with the results above."""

    def __init__(self) -> None:
        self.known = {(r.trial.backend, r.trial.precision): r for r in many()}

    def prepare(self, trial, limits):
        return None

    def run(self, trial, limits):
        found = self.known.get((trial.backend, trial.precision), self.known["torch_eager", "fp32"])
        return result(
            trial, status=found.status, reason=found.reason, metrics=found.metrics, queries=found.queries
        )


def test_optimize_prints_the_pick_the_ratio_and_a_row_a_variant(tmp_path, monkeypatch, capsys):
    monkeypatch.setattr(candidates, "installed", dict)
    runner = Scripted()
    monkeypatch.setattr(
        Setup, "cells", lambda self, store: ExperimentRunner(store, Limits(), runner, MACHINE)
    )
    command = ["optimize", "squeezenet1_1", "--device", "cpu", "--budget", "9s", "--output", "r.html"]
    assert main(command) in (0, 1)
    lines = calm(capsys.readouterr().out)
    assert lines[0].split("  ")[0] in ("Use", "Keep the baseline", "No recommendation")
    assert lines[-1].split() == ["report", "r.html"]
    assert main([*command, "-v", "--store", "other"]) in (0, 1)
    said = capsys.readouterr()
    more = said.out.splitlines()
    assert more, said.err
    assert len(more) > len(lines) and max(map(len, more)) <= terminal.WIDTH


@pytest.mark.slow
def test_a_large_table_keeps_the_pick_and_says_how_many_rows_it_leaves_out():
    page = variants.document([chapter(many())], written={"report": "edgescope-report.html"})
    brief = ["".join(text for text, _ in line).rstrip() for line in terminal.lines(page)]
    calm("\n".join(brief))
    assert (
        brief[0].startswith("Use  trtexec int8 b1") and " as fast as torch_eager fp32 b1 (3 of 3" in brief[1]
    )
    assert "top-1 agreement 93.8 % (min 75 %)" in brief[2]
    assert sum(line.endswith("pick") for line in brief) == 1
    assert sum(line.endswith("baseline") for line in brief) == 1
    assert any(line.startswith("and ") and line.endswith(" more: -v") for line in brief)
    whole = "\n".join(
        "".join(text for text, _ in line).rstrip() for line in terminal.lines(page, verbose=True)
    )
    assert max(map(len, whole.splitlines())) <= terminal.WIDTH
    flat = " ".join(whole.split())
    assert flat.count(LONG) >= 3 and "no power sensor" in flat
    assert all(row.label in whole for row in chapter(many()).table.rows)


@pytest.mark.slow
def test_cards_of_every_end_are_calm():
    for one in many():
        for page in (
            document(one),
            several([one, one]),
            recommendation.document(recommend([one], wanted("latency"))),
        ):
            text = "\n".join("".join(part for part, _ in line) for line in terminal.lines(page))
            calm("\n".join(line.rstrip() for line in text.splitlines()))
