"""Studies and what is asked of a store: other people's settings beside the grid's, packages that are not installed."""

from __future__ import annotations

import json
import subprocess
import sys
from dataclasses import replace

import pytest

from edgescope.bench import here
from edgescope.cli.main import main
from edgescope.errors import ExitCode
from edgescope.records import Absent, Machine, Measured, Trial, Window
from edgescope.store.results import Store
from edgescope.wings.studies.edge_training import study as grid
from making import result

BARE = {"queries": None, "window": None, "readings": None}
HIDDEN = """
import json, sys
class Hidden:
    def find_spec(self, name, path=None, target=None):
        if name.partition(".")[0] in {names}:
            raise ModuleNotFoundError(f"No module named {{name!r}}", name=name)
sys.meta_path.insert(0, Hidden())
import contextlib, io
from edgescope.cli.main import main
out = []
for words in json.loads(sys.argv[1]):
    err = io.StringIO()
    with contextlib.redirect_stderr(err), contextlib.redirect_stdout(io.StringIO()):
        try:
            code = main(words)
        except SystemExit as end:
            code = end.code
    out.append([code, err.getvalue()])
print(json.dumps(out))
"""


def told(capsys, *command):
    code = main([*map(str, command)])
    said = capsys.readouterr()
    return code, " ".join(said.out.split()), " ".join(said.err.split())


def saved(root, trial, figures, number=0, machine=None):
    name = f"{trial.id}-20260101T0000{number:02}-{number:06x}"
    made = {n: Measured(v, "s") for n, v in figures.items()}
    Store(root).save(result(trial, id_=name, machine=machine or here(), metrics=made, **BARE))


@pytest.mark.slow
def test_a_training_study_takes_its_own_cells_only(tmp_path, monkeypatch, capsys):
    """Workers 0 with ten times the samples an epoch is another epoch, not a slower loader; so are other data,
    precisions, engines, devices and ways with the page cache."""
    monkeypatch.setenv("EDGESCOPE_CACHE", str(tmp_path / "cache"))
    network = grid.networks()[0]
    cells = {t.workload_options["num_workers"]: t for t in grid.cells(network, "cpu")[::-1] if t.batch == 16}
    none, one = cells[0], cells[1]

    def other(**options):
        return replace(none, workload_options={**none.workload_options, **options})

    strangers = [
        other(epoch_samples=20000),
        other(page_cache="warm"),
        other(images="/somewhere/else"),
        other(prefetch_factor=4),
        replace(none, precision="bf16"),
        replace(none, options={"threads": 1}),
        replace(none, processes=2),
    ]
    usual = replace(grid.cells(network, "cpu")[0])
    saved(tmp_path / "s", usual, {"epoch_later_s": 1.0, "epoch_first_s": 1.0}, 1)
    saved(tmp_path / "s", one, {"epoch_later_s": 1.0, "epoch_first_s": 1.0}, 2)
    for n, trial in enumerate(strangers, 3):
        saved(tmp_path / "s", trial, {"epoch_later_s": 34.57, "epoch_first_s": 34.57}, n)
    code, out, _ = told(capsys, "study", "training", "--store", tmp_path / "s", "-v")
    assert code == 0 and "34.57" not in out and f"{len(strangers)} other results are left out" in out
    monkeypatch.setenv("EDGESCOPE_CACHE", str(tmp_path / "moved"))  # the folder of the cache is no setting
    _, moved, _ = told(capsys, "study", "training", "--store", tmp_path / "s", "-v")
    assert f"{len(strangers)} other results are left out" in moved


@pytest.mark.process
@pytest.mark.parametrize(
    ("names", "commands"),
    [
        (
            ("torch", "torchvision", "timm", "safetensors", "PIL", "pyarrow"),
            [
                ["anomaly", "train", "features", "detector.pt"],
                ["anomaly", "evaluate", "detector.pt", "features"],
                ["train", "clips", "clips", "x.pt"],
                ["bench", "null_module.pt2"],
                ["layers", "squeezenet1_1", "--backend", "torch_eager"],
            ],
        ),
        (
            ("onnx", "onnxruntime", "openvino", "av", "ai_edge_litert"),
            [
                ["anomaly", "generate", "videos"],
                ["layers", "squeezenet1_1", "--backend", "onnxruntime"],
                ["layers", "squeezenet1_1", "--backend", "openvino"],
            ],
        ),
    ],
)
def test_a_missing_package_is_a_message_for_every_verb(tmp_path, names, commands):
    done = subprocess.run(
        [sys.executable, "-c", HIDDEN.format(names=names), json.dumps(commands)],
        capture_output=True,
        text=True,
        cwd=tmp_path,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    for words, (code, err) in zip(commands, json.loads(done.stdout), strict=True):
        assert code not in (0, None) and "Traceback" not in err and "E-" in err, (words, code, err)


def test_an_import_that_fails_anywhere_in_a_verb_is_a_message_with_its_extra(monkeypatch, capsys):
    from edgescope.wings.doctor import cli as doctor

    def run(args):
        raise ModuleNotFoundError("No module named 'av'", name="av")

    monkeypatch.setattr(doctor, "run", run)
    code, _, err = told(capsys, "doctor")
    assert code == 3 and err.startswith("E-NAME-2") and "edgescope[video]" in err


def test_the_extras_of_the_messages_are_those_of_the_package():
    from importlib.metadata import metadata

    from edgescope import registry

    known = set(metadata("edgescope").get_all("Provides-Extra") or ())
    assert set(registry.EXTRAS) <= known and known - set(registry.EXTRAS) <= {
        "all",
        "dev",
        "docs",
        "networks",
        "page",
    }


@pytest.mark.slow
def test_only_engines_that_train_are_searched_for_training():
    from edgescope.wings.recommend.verb import Question, Scope

    keys = {"workload": "training", "device": "cpu", "batch": 16, "processes": 1}
    cells = Scope(keys, None, True, "", Store("none")).grid(Question(("squeezenet1_1",), None, ()))
    assert cells and {t.backend for t in cells} <= {"torch_eager", "torch_compile"}
    assert {t.precision for t in cells} <= {"fp32", "bf16", "fp16", "tf32"}


def pair(root, names=("onnxruntime", "openvino"), p50=(0.0247, 0.001)):
    for n, (backend, seconds) in enumerate(zip(names, p50, strict=True)):
        trial = Trial(model="null", backend=backend)
        saved(root, trial, {"latency_p50_s": seconds, "latency_p99_s": seconds * 1.1}, n)
    return [r.id for r in Store(root).results()]


@pytest.mark.slow
def test_a_comparison_of_one_pair_has_its_ratio_and_the_next_step(tmp_path, capsys):
    old, _ = pair(tmp_path / "s")
    code, out, _ = told(capsys, "compare", old, "latest", "--store", tmp_path / "s", "--json")
    page = json.loads(out)
    row = next(r for r in page["rows"] if r["metric"] == "latency_p50_s")
    assert code == ExitCode.UNDECIDED and page["judgement"] == "AMBIGUOUS"
    assert row["ratio"]["value"] == pytest.approx(1 / 24.7) and row["ratio"]["lo"] is None
    assert any("W-CMP-2" in w and "--replicates 5" in w for w in page["warnings"])


@pytest.mark.process
def test_a_report_names_no_flag_that_neither_it_nor_bench_has(tmp_path, capsys):
    pair(tmp_path / "s")
    code, _, _ = told(capsys, "report", "--store", tmp_path / "s", "-o", tmp_path / "r.md")
    text = (tmp_path / "r.md").read_text()
    assert code == 0 and "longer --budget" not in text and "sweep --replicates" in text
    assert "ratio 1 pair gives no" not in text


@pytest.mark.process
def test_a_gain_is_not_predicted_from_two_queries(tmp_path, capsys):
    trial = Trial(model="null", backend="null", scenario="fixed_rate", rate=10.0)
    figures = {"latency_p50_s": Measured(0.001, "s"), "throughput_sps": Measured(10.0, "samples/s")}
    few = result(trial, machine=here(), metrics=figures, window=Window(10, 12, 10_000_000, 50_000_000))
    Store(tmp_path / "s").save(few)
    code, out, _ = told(capsys, "explain", "latest", "--store", tmp_path / "s", "--json")
    assert code == 0
    assert "offered load" in out and " 2 queries " in out


@pytest.mark.parametrize(
    "unified", [Measured(2.9e9, "bytes"), Measured(3.5e9, "bytes"), Absent("no reading")]
)
def test_memory_that_cpu_and_gpu_share_counts(unified):
    """The resident set of a process leaves out what CUDA took of the same memory."""
    from edgescope.wings.studies.anomaly_detection import study as chain
    from edgescope.wings.studies.paper import papers

    paper = papers()["anomaly"]
    trial = chain.planned(paper, device="cuda", part="engines")[0]
    metrics = {"throughput_sps": Measured(40.0, "samples/s"), "peak_rss_bytes": Measured(0.9e9, "bytes")}
    jetson = Machine({"jetson": {"model": "Orin Nano"}}, {})
    found = chain.measured(
        paper, [result(trial, machine=jetson, metrics={**metrics, "unified_memory_bytes": unified})], "cuda"
    )
    memory = found.fastest["memory_bytes"]
    assert memory == unified or (isinstance(unified, Absent) and isinstance(memory, Absent))
    bare = chain.measured(paper, [result(trial, machine=jetson, metrics=metrics)], "cuda")
    assert isinstance(bare.fastest["memory_bytes"], Absent)
    assert trial.model == paper.numbers[0].model.partition(" ")[0]  # the boards' own form of the network


@pytest.mark.slow
def test_the_empty_table_of_eleven_networks_has_short_tiles_and_no_contradiction(tmp_path, capsys):
    code, _, _ = told(capsys, "study", "nano_table", "--store", tmp_path / "s", "-o", tmp_path / "n.html")
    page = (tmp_path / "n.html").read_text()
    tiles = page[page.index('class="tiles"') :].partition("</dl>")[0]
    assert code == 1 and "<dd>n/a</dd>" in tiles and "<dd>nothing was measured</dd>" not in tiles
