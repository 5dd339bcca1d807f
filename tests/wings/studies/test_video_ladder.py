"""The ladder: what a level changes, what is kept, what is still to be measured."""

from dataclasses import replace
from typing import Any

import pytest

from board_machines import described, ran
from edgescope.records import Machine, Measured, Result, Status, Trial, Verification
from edgescope.report import terminal
from edgescope.wings.studies.claim import Answer
from edgescope.wings.studies.page import document, of
from edgescope.wings.studies.paper import papers
from edgescope.wings.studies.video_ladder import climb, networks, study
from making import result as made

PAPER = papers()["ladder"]
ORIN = described("orin_nano")


def rate_of(trial: Trial) -> float:
    """Frames per second of a made-up machine: each change gains by a factor of its own, int8 and fp16 lose."""
    options, rate = trial.workload_options, 2.0
    if trial.workload == "inference":
        return 100.0 * min(trial.batch, 8)
    rate *= {"elements": 1.0, "copied": 1.5, "host": 4.0, "device": 6.0}[options["postprocess"]]
    rate *= 2.0 if trial.batch > 1 else 1.0
    rate *= 0.5 if trial.precision in ("fp16", "int8") and trial.backend != "openvino" else 1.0
    rate *= (
        1.5 if options.get("decode") == "scaled" or str(options.get("source")).startswith("nvdec") else 1.0
    )
    rate *= 2.0 if trial.in_flight > 1 else 1.0
    return rate * (3.0 if trial.backend == "openvino" or trial.options.get("graph") else 1.0)


def result(trial: Trial, rate: float | None = None, status: Status = Status.OK, **more: Any) -> Result:
    rate = rate_of(trial) if rate is None else rate
    check = Verification(True, "box_agreement", {"frame_agreement": Measured(0.99, "1")}, 0.9, "")
    metrics = {"throughput_sps": Measured(rate, "samples/s"), "pipeline_fps": Measured(rate, "frames/s")}
    metrics |= {f"{name}_alone_fps": Measured(rate * 1.1, "frames/s") for name in study.STAGES}
    metrics |= {f"{name}_free_gain": Measured(1.1, "ratio") for name in study.STAGES}
    return made(
        trial,
        status=status,
        metrics=metrics,
        verification=check,
        reason="it broke",
        artifact={"samples": [["data:image/jpeg;base64,AAAA", "frame 3: 1 box"]]},
        **more,
    )


def whole(device: str, bad: str = "") -> tuple[climb.Climbed, list[Trial]]:
    """The whole ladder, and every trial that it asked for, in order."""
    seen: dict[str, Result] = {}
    asked: list[Trial] = []
    steps = climb.levels(PAPER, device)
    while True:
        found = climb.climb(steps, "net", device, "clip.mp4", lambda trial: seen.get(trial.id))
        if found.wants is None:
            return found, asked
        assert found.wants.id not in seen, "asked for twice"
        asked.append(found.wants)
        broken = bad and bad in found.wants.label
        seen[found.wants.id] = result(found.wants, status=Status.WRONG_OUTPUT if broken else Status.OK)


def drawn(found: climb.Climbed, name: str):
    parts = of(PAPER, study.told(PAPER, found, "net", "cuda")).parts
    return next(part for part in parts if getattr(part, "name", "") == name).draw()


@pytest.mark.parametrize("device", ["cpu", "cuda"])
def test_every_level_is_measured_once_to_decide_and_then_in_rounds(device):
    found, asked = whole(device)
    looks = [trial for trial in asked if trial.workload_options.get("what_if")]
    rungs = [rung for rung in found.rungs if rung.trial is not None]
    assert len(looks) == len(rungs) == (8 if device == "cuda" else 7)
    assert all(len(rung.rounds) == climb.ROUNDS for rung in rungs)
    assert {trial.replicate for trial in asked} == {0, 1, 2, 3}
    assert len({trial.id for trial in asked}) == len(asked)


def test_a_change_that_loses_is_shown_and_left_out_of_the_next_levels():
    found, _ = whole("cuda")
    lost = found.rungs[4]
    assert lost.level.title == "reduced precision" and lost.good and not lost.kept
    assert all(rung.trial.precision == "fp32" for rung in found.rungs[5:])
    assert found.rungs[5].over == 3
    assert "reduced precision loses here" in " ".join(study.notes(found))


def test_the_batch_is_the_one_at_which_inference_stops_gaining():
    found, _ = whole("cuda")
    assert found.knee == 8 == found.rungs[3].trial.batch == found.kept[-1].trial.batch
    assert found.batches[8] == 800.0


@pytest.mark.parametrize(
    ("first", "then", "kept"), [(1.1, 0.8, False), (0.9, 1.2, True), (1.1, 1.2, True), (0.5, 1.2, False)]
)
@pytest.mark.parametrize("status", [Status.OK, Status.UNSTABLE])
def test_a_look_that_decides_nothing_is_followed_by_runs_in_turns(first, then, kept, status):
    """One level's first look says `first` times the level below; its runs in turns say `then`."""
    seen, asked = {}, []
    steps = climb.levels(PAPER, "cpu")
    while (found := climb.climb(steps, "net", "cpu", "", lambda trial: seen.get(trial.id), rounds=0)).wants:
        trial = found.wants
        asked.append(trial)
        scaled = trial.workload_options.get("decode") == "scaled" and trial.in_flight == 1
        looked = bool(trial.workload_options.get("what_if"))
        rate = rate_of(replace(trial, workload_options={**trial.workload_options, "decode": "full"}))
        rate *= (first if looked else then) if scaled else 1.0
        seen[trial.id] = result(trial, rate, status if scaled and looked else Status.OK)
    plain = first == 0.5 and status is Status.OK
    wanted = [] if plain else ["full", "scaled"] * climb.PAIRS
    turns = [trial for trial in asked if trial.replicate > 100]
    assert found.rungs[5].kept is (kept or (first == 0.5 and not plain))
    assert [t.workload_options.get("decode", "full") for t in turns][: 2 * climb.PAIRS] == wanted
    if found.rungs[5].kept and status is Status.UNSTABLE:  # so is its look beside the next level's
        again = [t.workload_options.get("decode", "full") for t in turns][2 * climb.PAIRS :]
        assert again == ["scaled", "scaled"] * climb.PAIRS and len({t.id for t in turns}) == len(turns)


def test_what_changes_nothing_on_a_device_says_why():
    found, _ = whole("cpu")
    assert found.rungs[1].trial is None
    assert study.line(found, found.rungs[1]) == (
        "1 outputs copied once: no change here (outputs are in the host's memory already)"
    )


def test_a_level_with_wrong_outputs_is_not_built_upon():
    found, _ = whole("cuda", bad="nvdec")
    rung = found.rungs[5]
    assert not rung.good and not rung.kept and not rung.rounds
    assert "nvdec" not in str(found.kept[-1].trial.workload_options["source"])
    assert "it broke" in study.line(found, rung)


def test_the_document_gives_the_whole_gain_and_the_ceiling():
    found, _ = whole("cuda")
    page = of(PAPER, study.told(PAPER, found, "net", "cuda"))
    assert page.data["levels"][-1]["over_baseline"][0] == pytest.approx(rate_of(found.kept[-1].trial) / 2.0)
    assert study._ceiling(found).startswith("91% of what its slowest stage, decode, does alone")
    assert page.data["levels"][0]["Nano_fps"] == 1.09
    (pictures,) = [part for part in page.parts if getattr(part, "title", "") == "What the top level finds"]
    assert pictures.parts[0].items == (("data:image/jpeg;base64,AAAA", "frame 3: 1 box"),)


def test_the_rates_have_ours_the_networks_and_the_published_ones():
    pytest.importorskip("plotly")
    found, _ = whole("cuda")
    ours, alone, nano, desktop = drawn(found, "rates").data
    assert len(ours.y) == len(found.rungs) == 8 and ours.y[0] == pytest.approx(2.0)
    assert alone.y[0] == pytest.approx(2.2) and nano.y[0] == 1.09
    assert desktop.y[-1] == 650.0 and desktop.x[-1] == "6 overlapped"


def test_an_empty_store_says_how_to_measure():
    page = document(PAPER, [], device="cpu")
    assert "edgescope study ladder --run" in page.parts[0].reason
    assert page.parts[0].kind == "none"


@pytest.mark.slow
def test_the_waterfall_has_a_bar_for_each_stage_and_level():
    pytest.importorskip("plotly")
    found, _ = whole("cuda")
    for rung in found.rungs:
        for name in study.STAGES:
            rung.look.metrics[f"{name}_s"] = Measured(0.008, "s")
    figure = drawn(found, "waterfall")
    assert [trace.name for trace in figure.data] == [*study.STAGES, "at full rate"]
    assert figure.data[0].x[3] == pytest.approx(1.0)  # 8 ms for a unit of eight frames
    for name in study.STAGES:
        found.rungs[0].look.metrics[f"{name}_s"] = Measured(0.1, "s")
    figure = drawn(found, "waterfall")
    assert figure.data[0].x[0] == figure.data[0].x[7] == pytest.approx(25.0)
    assert figure.data[0].y[0].endswith("400 ms") and len(figure.data) == 4
    found.rungs[0].look.metrics["infer_device_s"] = Measured(0.02, "s")
    figure = drawn(found, "waterfall")
    assert figure.data[2].y[1] == "0 on the device" and figure.data[2].x[1] == pytest.approx(5.0)
    assert figure.data[0].x[1] is None and study.records(found)[0]["infer_device_s"] == 0.02


# -- claims, networks in two precisions, boards --------------------------------------------------------------


def claims(found: climb.Climbed, pairs=()) -> dict[str, Any]:
    told = study.told(PAPER, found, "net", "cuda", pairs)
    return {each.claim.key: each.found for each in told.claims}


def test_each_levels_gain_is_held_against_the_claims():
    found, _ = whole("cuda")
    answers = claims(found)
    assert answers["levels"].answer is Answer.HOLDS and answers["levels"].agree == "3 of 3"
    assert answers["reduced"].answer is Answer.HOLDS and "0.50x" in answers["reduced"].evidence[0]
    assert answers["fp16_networks"].answer is answers["fp16_depends"].answer is Answer.UNKNOWN
    slower = replace_rates(found, {"vectorised": 0.1, "reduced precision": 3.0})
    answers = claims(slower)
    assert answers["levels"].answer is answers["reduced"].answer is Answer.FAILS


def replace_rates(found: climb.Climbed, factors: dict[str, float]) -> climb.Climbed:
    """The ladder with the rounds of some levels scaled."""
    for rung in found.rungs:
        if (by := factors.get(rung.level.title)) is not None:
            rung.rounds = [result(r.trial, by * rate_of(r.trial)) for r in rung.rounds]
    return found


def inference(model: str, half: float) -> list[Result]:
    """A network in fp32 and in fp16, `half` times as fast."""
    trial = Trial(model=model, backend="torch_eager", device="cuda")
    return [
        ran(ORIN, replace(trial, precision=precision, replicate=i), 100.0 * by)
        for precision, by in (("fp32", 1.0), ("fp16", half))
        for i in range(3)
    ]


def test_networks_that_ran_in_both_precisions_are_told_and_judged():
    results = [*inference("a", 0.6), *inference("b", 0.8), *inference("c", 0.9)]
    alone = inference("only", 1.0)[:3]
    pairs = networks.networks([*results, *alone], "cuda")
    assert [pair.name for pair in pairs] == ["a, torch_eager", "b, torch_eager", "c, torch_eager"]
    answers = claims(climb.Climbed(), pairs)
    assert answers["fp16_networks"].answer is answers["fp16_depends"].answer is Answer.HOLDS
    assert "1.50x" in answers["fp16_depends"].evidence[0]
    faster = networks.networks([*inference("a", 2.0), *inference("b", 2.0)], "cuda")
    answers = claims(climb.Climbed(), faster)
    assert answers["fp16_networks"].answer is Answer.FAILS
    assert answers["fp16_depends"].answer is not Answer.HOLDS
    page = document(PAPER, results, device="cuda")
    shown = "\n".join("".join(text for text, _ in line) for line in terminal.lines(page, 80, limit=None))
    assert "a, torch_eager" in shown and "0.6x" in shown.replace("0.60x", "0.6x")


def test_a_jetson_decodes_by_gstreamer_and_its_ladder_is_recognised():
    (there,) = [s for s in climb.levels(PAPER, "cuda", jetson=True) if s.title == "no copy of whole frames"]
    (here,) = [s for s in climb.levels(PAPER, "cuda") if s.title == "no copy of whole frames"]
    assert (
        climb.changed(Trial(model="m"), there.changes, "f.mp4").workload_options["source"]
        == "gstreamer:f.mp4"
    )
    assert climb.changed(Trial(model="m"), here.changes, "f.mp4").workload_options["source"] == "nvdec:f.mp4"
    assert (
        climb.is_jetson(ORIN) and not climb.is_jetson(Machine({"cpu": {}}, {})) and not climb.is_jetson(None)
    )


def test_two_boards_stand_beside_each_other_and_beside_what_was_printed():
    found, _ = whole("cuda")
    told = study.told(PAPER, found, "net", "cuda")
    (entry,) = told.entries
    assert entry["gain"].value == pytest.approx(entry["throughput_sps"].value / 2.0, rel=0.01)
    printed = dict(told.printed)
    assert printed["Nano"]["gain"].value == pytest.approx(2.57 / 1.09) and "desktop" in printed
