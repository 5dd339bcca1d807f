"""The study of the whole anomaly detector: what is measured, what belongs to it, how each claim comes out."""

from dataclasses import replace

import pytest

from edgescope.bench.parts import HERE
from edgescope.records import Measured, Status, Trial
from edgescope.report import data, html
from edgescope.wings.studies.anomaly_detection import study
from edgescope.wings.studies.claim import Answer
from edgescope.wings.studies.page import document
from edgescope.wings.studies.paper import papers
from edgescope.wings.video import pipeline
from making import result

PAPER = papers()["anomaly"]
FPS = {
    "torch_eager": 10.0,
    "onnxruntime": 20.0,
    "openvino": 40.0,
    "torch_compile": 90.0,
    "tensorrt": 120.0,
    "torch_tensorrt": 110.0,
}


def rate_of(trial: Trial) -> float:
    """A made-up machine: the features cost most, the head a little, ten crops ten times as much."""
    options, frames = trial.workload_options, trial.shapes.get("input", (1, 3, 16))[2]
    work = {"i3d_r50_nl": 1.0, "i3d_r50_nl_8x8": 4.0, "s3d": 0.9}[trial.model] * options.get("views", 1)
    work += options.get("snippets", 32) / 3200 / frames * 16
    return FPS[trial.backend] / work * (2.0 if trial.precision != "fp32" else 1.0)


def made(trial: Trial, rate: float, **keys):
    noise = 1 + 0.01 * (trial.replicate - 1)
    figures = {
        "throughput_sps": Measured(
            rate * noise, "samples/s", 0.99 * rate * noise, 1.01 * rate * noise, n=200
        ),
        "peak_rss_bytes": Measured(keys.pop("memory", 2e9), "bytes"),
        "infer_s": Measured(0.9 / rate, "s"),
    }
    return result(trial, metrics=figures, **keys)


def world(device="cpu", part="all", rate=rate_of, **keys):
    return [made(trial, rate(trial), **keys) for trial in study.planned(PAPER, device=device, part=part)]


def test_the_plan_measures_engines_in_rounds_and_each_question_once():
    trials = study.planned(PAPER)
    assert len({trial.id for trial in trials}) == len(trials)
    engines = [t for t in trials if t.replicate]
    assert {t.replicate for t in engines} == {1, 2} and len(engines) == 2 * 4
    firsts = [t for t in trials if not t.replicate]
    # 4 engines, 8 more shapes, 1 more number of views, 3 more chains; what they share is measured once
    assert len(firsts) == 4 + 8 + 1 + 3
    assert {t.shapes["input"][2] for t in firsts if t.shapes} == {8, 32}
    assert all(t.batch == t.workload_options.get("views", 1) for t in trials)


def test_the_studys_own_engine_stands_in_its_table_on_a_gpu():
    engines = [t for t in study.planned(PAPER, device="cuda", part="engines") if not t.replicate]
    assert ("torch_tensorrt", "fp16") in {(t.backend, t.precision) for t in engines}


@pytest.mark.parametrize("device", ["cpu", "cuda"])
def test_every_planned_trial_is_one_that_the_workload_accepts(device):
    for trial in study.planned(PAPER, device=device):
        plan = pipeline.planned(trial, HERE)
        pipeline.supported(plan)
        assert plan.trials[-1].model == trial.workload_options["head"]


def test_what_is_stored_is_told_apart():
    cells = study.measured(PAPER, world(), "cpu")
    assert all(cell.runs for cell in cells.every)
    assert [len(cell.runs) for cell in cells.of("engines")] == [3, 3, 3, 3]
    other = Trial(model="i3d_r50_nl", workload="video", workload_options={"head": "rtfm", "stride": 4})
    assert study.wanted(other) and not study.wanted(Trial(model="i3d_r50_nl"))
    assert study.measured(PAPER, [made(other, 5.0)], "cpu").fastest is None
    assert cells.fastest.engine == "openvino bf16"


def test_the_claims_hold_on_a_fast_machine_and_not_on_a_slow_one():
    fast = study.measured(PAPER, world(rate=lambda t: 10 * rate_of(t)), "cpu")
    assert study.real_time(fast).answer is Answer.HOLDS
    assert study.optimised(fast).answer is Answer.HOLDS
    assert study.memory(fast).answer is Answer.HOLDS
    slow = study.measured(PAPER, world(rate=lambda t: 1.0, memory=5e9), "cpu")
    assert study.real_time(slow).answer is Answer.FAILS
    assert study.optimised(slow).answer is not Answer.HOLDS
    assert study.memory(slow).answer is Answer.FAILS
    worse = study.measured(PAPER, world(rate=lambda t: 2.0 if t.backend == "torch_eager" else 1.0), "cpu")
    assert study.optimised(worse).answer is Answer.FAILS
    nothing = study.measured(PAPER, [], "cpu")
    assert {rule(nothing).answer for rule in (study.real_time, study.optimised, study.memory)} == {
        Answer.UNKNOWN
    }


def test_the_page_has_every_table_and_no_ratio_to_another_board():
    page = document(PAPER, world())
    text = data.markdown(page)
    for words in (
        "Orin Nano (study)",
        "47.56",
        "1.55",
        "Snippets x frames",
        "One crop against ten",
        "Lighter chains",
    ):
        assert words in text, words
    assert "openvino bf16" in text and "ten crops in place of one" in text
    assert "not measurable here" in text and len(page.data["claims"]) == 8
    shapes = [row for row in page.data["cells"] if row["part"] == "shapes"]
    assert len(shapes) == 9 and html.render(page).count("<table") >= 5


def test_a_cell_that_failed_shows_why():
    results = world(part="engines")
    broken = [
        made(r.trial, 1.0, status=Status.UNSUPPORTED, reason="E-PREC-1: this CPU has no bfloat16")
        if r.trial.precision == "bf16"
        else r
        for r in results
    ]
    text = data.markdown(document(PAPER, broken))
    assert "no bfloat16" in text and "9.9" in text


def test_an_empty_store_says_what_to_run():
    page = document(PAPER, [])
    assert page.parts[0].kind == "none" and "edgescope study anomaly --run" in page.parts[0].reason


def test_another_device_has_cells_of_its_own():
    cells = study.measured(PAPER, [replace(r, trial=r.trial) for r in world("cuda")], "cuda")
    assert cells.fastest.engine == "tensorrt fp16" and not study.measured(PAPER, world("cuda"), "cpu").fastest
