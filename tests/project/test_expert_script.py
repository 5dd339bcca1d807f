"""benchmarks/expert.py beside and what it is made of: its rules, its picks, its partial files, its arms."""

import argparse
import json
import random
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
import torch

from edgescope.records import Trial
from edgescope.wings.studies.jetson_nano.table import study

sys.path.insert(0, str(Path(__file__).parents[2] / "benchmarks"))
import by_hand
import expert
import facts


def rounds(**arms):
    return [
        {n: {"median_s": s * (1 + 0.01 * i), "centred_l2": l2} for n, (s, l2) in arms.items()}
        for i in range(3)
    ]


def test_the_pick_is_held_against_the_best_expert_whose_outputs_are_right():
    found = expert.judged(
        rounds(pick=(0.9, 0.0), fast_but_wrong=(0.1, 0.3), right=(1.0, 0.05), slow=(2.0, 0.0))
    )
    assert found["best_expert"] == "right" and found["arms"]["fast_but_wrong"]["eligible"] is False
    assert (
        found["ratio"]["value"] == pytest.approx(1 / 0.9) and found["ratio"]["lo"] <= found["ratio"]["value"]
    )


def test_an_arm_that_is_missing_in_a_round_does_not_count():
    some = rounds(pick=(1.0, 0.0), a=(0.5, 0.0), b=(2.0, 0.0))
    some[1]["a"] = {"absent": "no engine"}
    assert expert.judged(some)["best_expert"] == "b"
    some[0]["pick"] = {"absent": "gone"}
    assert "absent" in expert.judged(some)["ratio"]


def test_a_pick_with_wrong_outputs_has_no_ratio():
    found = expert.judged(rounds(pick=(0.1, 0.2), right=(1.0, 0.0)))
    assert "centred L2 is 0.2" in found["ratio"]["absent"]


def test_what_the_pick_gains_over_eager_is_told_and_no_expert():
    found = expert.judged(rounds(pick=(1.0, 0.0), before=(4.0, 0.0), a=(1.1, 0.0)))
    assert found["best_expert"] == "a" and found["speedup"]["value"] == pytest.approx(4.0)
    assert found["speedup"]["lo"] <= 4.0 + 1e-9 and found["speedup"]["n"] == 3


def test_an_expert_that_is_far_behind_in_the_first_round_is_not_started_again():
    first = rounds(pick=(1.0, 0.0), before=(9.0, 0.0), a=(1.0, 0.0), b=(1.4, 0.0), c=(1.6, 0.0))[0]
    wrong = {"fast": {"median_s": 0.1, "centred_l2": 0.5}, "gone": {"absent": "x"}}
    assert expert.too_slow(first) == {"c"} == expert.too_slow(first | wrong)
    some = rounds(pick=(1.0, 0.0), a=(2.0, 0.0), c=(1.5, 0.0))
    for later in some[1:]:
        del later["c"]
    found = expert.judged(some)
    assert found["best_expert"] == "a" and found["arms"]["c"]["eligible"] and found["ratio"]["n"] == 3


DIES = """
import sys
print('{}', flush=True)
sys.stdin.readline()
print('{"centred_l2": 0.0}', flush=True)
sys.stdin.readline()
print('{"median_s": 0.5, "n": 5}', flush=True)
sys.stdin.readline()
sys.exit(3)
"""
LIVES = """
import sys
print('{}', flush=True)
sys.stdin.readline()
print('{"centred_l2": 0.0}', flush=True)
for line in sys.stdin:
    print('{"median_s": 1.0, "n": 5}', flush=True)
"""


@pytest.mark.process
def test_an_arm_that_dies_in_the_middle_of_a_round_is_absent(monkeypatch):
    def started(command, **keys):
        script = DIES if command[3] == "pick" else LIVES
        return started.real([sys.executable, "-c", script], **keys)

    started.real = subprocess.Popen
    monkeypatch.setattr(expert.subprocess, "Popen", started)
    args = argparse.Namespace(device="cpu", turns=3, seconds=0.0)
    found = expert.one_round("squeezenet1_1", {}, args, random.Random(0), "time_slicing", ())
    assert found["pick"] == {"absent": "the process ended with 3"}
    assert found["openvino_latency"] == {"centred_l2": 0.0, "median_s": 1.0, "turns_s": [1.0] * 3}
    assert "absent" in expert.judged([found])["ratio"]


ELEVEN = [r.ours for r in study().rows]


def experts(*names, **ratios):
    arms = {n: {"eligible": True} for n in names}
    return {m: {"arms": arms, "ratio": {"value": ratios.get(m, 1.0)}} for m in ELEVEN}


def test_the_experts_are_met_on_all_models_and_from_every_family():
    both = experts("openvino_latency", "torch_compile_fp32")
    assert expert.expert_met(both, "cpu")
    assert not expert.expert_met(both, "cuda")  # no ONNX Runtime with a graph
    assert not expert.expert_met({m: both[m] for m in ELEVEN[1:]}, "cpu") and not expert.expert_met({}, "cpu")
    assert not expert.expert_met(experts("openvino_latency", "torch_compile_fp32", vgg19=0.96), "cpu")
    wrong = both | {"vgg19": {"arms": {"openvino_latency": {"eligible": True}}, "ratio": {"value": 1.0}}}
    assert not expert.expert_met(wrong, "cpu") and expert.lacking(wrong["vgg19"], "cpu") == ["torch_compile"]


@pytest.mark.parametrize(
    ("other", "lacking"),
    [
        ({"eligible": False, "median_s": 1.5}, []),
        ({"eligible": False, "median_s": 0.5}, ["torch_compile"]),
        ({"absent": "out of memory"}, ["torch_compile"]),
        ({"absent": expert.LEFT_OUT}, ["torch_compile"]),
    ],
)
def test_a_family_of_wrong_outputs_was_beaten_where_all_of_it_ran_and_none_was_quicker(other, lacking):
    arms = {
        "pick": {"eligible": True, "median_s": 1.0},
        "openvino_latency": {"eligible": True, "median_s": 1.0},
        "torch_compile_fp32": other,
        "torch_compile_bf16": {"eligible": False, "median_s": 1.2},
    }
    assert expert.lacking({"arms": arms}, "cpu") == lacking


def test_the_target_is_not_met_without_an_arm_that_was_left_out():
    both = experts("openvino_latency", "torch_compile_fp32")
    assert expert.expert_met(both, "cpu")
    both["vgg19"]["arms"] = both["vgg19"]["arms"] | {
        "torch_compile_bf16": {"absent": "left out by hand: why"}
    }
    assert not expert.expert_met(both, "cpu") and expert.left_out(both["vgg19"]) == {"torch_compile_bf16"}


@pytest.mark.parametrize("device", ["cpu", "cuda"])
def test_the_published_pages_keep_to_the_rule(device):
    page = facts.published(f"expert/{device}")
    models = page["figures"]["models"]
    assert page["met"] is expert.expert_met(models, device)
    assert page["figures"]["worst"]["value"] == min(m["ratio"]["value"] for m in models.values())
    assert all(m["families_missing"] == expert.lacking(m, device) for m in models.values())
    machines = expert.by_machine(models)
    assert page["machine_id"] in machines and page["figures"].get("machines", machines) == machines


def test_an_arm_that_is_left_out_is_not_started_and_the_page_says_so(monkeypatch):
    started = []

    def arm(name, *rest):
        started.append(name)
        return argparse.Namespace(
            ready={"centred_l2": 0.0}, imported=list, load=list, close=list, turn=lambda seconds: 1.0
        )

    monkeypatch.setattr(expert, "Arm", arm)
    args = argparse.Namespace(device="cpu", rounds=2, turns=1, seconds=0.0, leave_out=["torch_compile_bf16"])
    found = expert.measured("vgg19", {"backend": "x"}, args, random.Random(0))
    assert found["arms"]["torch_compile_bf16"] == {"absent": "left out by --leave-out"}
    partial = expert.Partial("", {})
    partial.put("vgg19", found)
    assert partial.get("vgg19", {"backend": "x"}, 2, ["torch_compile_bf16"]) == found
    assert partial.get("vgg19", {"backend": "x"}, 2) is None  # now it is asked for
    assert "torch_compile_bf16" not in started and started.count("torch_compile_fp32") == 2


def test_an_expert_that_nobody_knows_cannot_be_left_out(monkeypatch, capsys):
    monkeypatch.setattr(sys, "argv", ["expert.py", "--leave-out", "torch_compile_fp61"])
    with pytest.raises(SystemExit):
        expert.beside()
    assert "torch_compile_fp61" in capsys.readouterr().err


@pytest.mark.slow
def test_a_model_without_a_pick_is_published_as_absent_and_a_subset_by_another_name(tmp_path, monkeypatch):
    kept = {}
    monkeypatch.setattr(expert, "publish", lambda name, figures, met: kept.update({name: (figures, met)}))
    monkeypatch.setattr(sys, "argv", ["expert.py", "--store", str(tmp_path / "none")])
    expert.beside()
    figures, met = kept["expert/cpu"]
    assert not met and set(figures["models"]) == set(ELEVEN)
    assert figures["models"]["vgg19"]["ratio"] == {"absent": expert.NO_PICK} and "absent" in figures["worst"]
    assert list(figures["machines"].values()) == [list(figures["models"])]
    monkeypatch.setattr(sys, "argv", [*sys.argv, "--models", "vgg19"])
    expert.beside()
    assert set(kept) == {"expert/cpu", "expert/cpu_subset"}


def test_the_picks_of_a_published_table_are_understood():
    cpu = expert.from_table("nano_table/cpu", "cpu")
    assert set(cpu) == set(ELEVEN) and all(cpu.values())
    cuda = expert.from_table("nano_table/cuda", "cuda")
    assert set(cuda) == set(ELEVEN) and any(cuda.values())
    for device, found in (("cpu", cpu), ("cuda", cuda)):
        for pick in filter(None, found.values()):
            trial = Trial(model="x", device=device, **pick)
            assert expert.read_label(trial.label, device) == pick


def test_the_first_table_that_has_a_pick_is_taken():
    tables = [f"nano_table/cuda{part}" for part in ("", "_subset")]
    first, both = (
        expert.picks(argparse.Namespace(models=[], pick="", table=some, device="cuda"))
        for some in (tables[:1], tables)
    )
    assert all(both.values()) and not all(first.values())
    assert all(both[m] == p for m, p in first.items() if p)


def test_a_label_is_read_as_it_was_printed():
    options = {"graph": True, "threads": 2, "share": 0.5, "layout": "channels_last"}
    trial = Trial(model="x", backend="torch_eager", device="cuda", precision="fp16", options=options)
    assert expert.read_label(trial.label, "cuda")["options"] == options


@pytest.mark.parametrize(
    "label", ["openvino int8 b4", "openvino int8 b1 P2", "openvino cuda int8 b1", "nonsense"]
)
def test_a_label_that_says_more_is_refused(label):
    with pytest.raises(SystemExit, match="plain variant of batch 1"):
        expert.read_label(label, "cpu")


def test_a_file_that_is_no_table_is_refused(tmp_path):
    for text in ("", "{}", '{"figures": {"device": "cpu", "rows": [1]}}'):
        (tmp_path / "t.json").write_text(text)
        with pytest.raises(SystemExit, match="no published table"):
            expert.from_table(tmp_path / "t.json", "cpu")
    with pytest.raises(SystemExit, match="--device cpu"):
        expert.from_table("nano_table/cpu", "cuda")


@pytest.mark.slow
def test_a_run_that_was_stopped_goes_on_and_measures_no_model_twice(tmp_path, monkeypatch):
    table = "nano_table/cpu"
    partial = tmp_path / "part.json"
    asked, kept = [], {}

    def measured(model, pick, args, rng):
        if model == "vgg19" and not partial.with_name("again").exists():
            raise KeyboardInterrupt
        asked.append(model)
        return {"pick": pick, "arms": {}, "ratio": {"value": 1.0, "n": args.rounds}}

    monkeypatch.setattr(expert, "measured", measured)
    monkeypatch.setattr(expert, "publish", lambda name, figures, met: kept.update({name: figures}))
    models = "alexnet,vgg19,resnet50"
    command = ["expert.py", "--table", str(table), "--partial", str(partial), "--models", models]
    monkeypatch.setattr(sys, "argv", command)
    with pytest.raises(KeyboardInterrupt):
        expert.beside()
    assert list(json.loads(partial.read_text())["models"]) == ["alexnet"] and not kept
    partial.with_name("again").touch()
    expert.beside()
    assert asked == ["alexnet", "vgg19", "resnet50"]
    assert set(kept["expert/cpu_subset"]["models"]) == set(asked)
    monkeypatch.setattr(sys, "argv", [*command[:-1], "vgg19", "--rounds", "7"])
    expert.beside()  # more rounds of one
    monkeypatch.setattr(sys, "argv", command)
    expert.beside()
    assert asked[3:] == ["vgg19"]
    found = kept["expert/cpu_subset"]["models"]
    assert [found[m]["ratio"]["n"] for m in models.split(",")] == [3, 7, 3]
    monkeypatch.setattr(sys, "argv", [*command, "--turns", "7"])
    with pytest.raises(SystemExit, match="'turns': 20"):
        expert.beside()


def test_a_copy_of_a_published_page_is_gone_on_from(tmp_path):
    published = facts.published("expert/cuda_subset")
    page = published["figures"]
    copy = tmp_path / "part.json"
    copy.write_text(json.dumps(published))
    settings = {k: v for k, v in page["settings"].items() if k != "rounds"}
    partial = expert.Partial(str(copy), settings)
    model, known = next(iter(page["models"].items()))
    assert partial.get(model, known["pick"], 3)["machine_id"]
    assert not partial.get(model, known["pick"], known["ratio"]["n"] + 1)
    partial.put("vgg19", {"pick": {}})
    again = expert.Partial(str(copy), settings)
    assert again.get(model, known["pick"], 3) == known and again.get("vgg19", {}, 3)


def test_another_pick_is_measured_again(tmp_path):
    partial = expert.Partial(str(tmp_path / "p.json"), {})
    partial.put("vgg19", {"pick": {"backend": "a"}})
    again = expert.Partial(str(tmp_path / "p.json"), {})
    assert again.get("vgg19", {"backend": "a"}, 3) and not again.get("vgg19", {"backend": "b"}, 3)
    assert not again.get("vgg19", None, 3) and not again.get("resnet50", {"backend": "a"}, 3)


@pytest.mark.parametrize(
    ("model", "shape", "layout"),
    [
        ("squeezenet1_1", (1, 3, 224, 224), torch.channels_last),
        ("har_cnn3d", (1, 3, 16, 64, 64), torch.channels_last_3d),
    ],
)
def test_the_compiled_expert_gets_weights_and_inputs_channels_last(monkeypatch, model, shape, layout):
    seen = {}

    def compiled(net, mode):
        seen["weights"] = net.weight.is_contiguous(memory_format=layout)

        def run(x):
            seen["inputs"] = x.is_contiguous(memory_format=layout)
            return net(x).mean(dim=tuple(range(2, x.dim())))

        return run

    kind = torch.nn.Conv2d if len(shape) == 4 else torch.nn.Conv3d
    monkeypatch.setattr(torch, "compile", compiled)
    monkeypatch.setattr(torch.backends.cudnn, "allow_tf32", torch.backends.cudnn.allow_tf32)  # put back
    monkeypatch.setattr(by_hand, "eager", lambda m, d: (torch, kind(3, 4, 3)))
    run = by_hand._compiled(model, "cpu", "fp32", layout)
    assert run({"x": np.ones(shape, np.float32)})[0].shape == (1, 4) and seen == {
        "weights": True,
        "inputs": True,
    }


def test_of_clips_the_faster_layout_is_the_experts(monkeypatch):
    made = []
    monkeypatch.setattr(by_hand, "_compiled", lambda m, d, p, layout: made.append(layout) or layout)
    monkeypatch.setattr(by_hand, "batches", lambda *a: [])
    for slow in (torch.contiguous_format, torch.channels_last_3d):
        monkeypatch.setattr(
            by_hand, "measure", lambda run, *a, slow=slow: {"median_s": 2.0 if run is slow else 1.0}
        )
        assert by_hand.compiled("har_cnn3d", "cpu", "fp32") is not slow
    assert set(made) == {torch.contiguous_format, torch.channels_last_3d}
    assert by_hand.compiled("squeezenet1_1", "cpu", "fp32") is torch.channels_last


def test_the_reference_is_computed_once_and_outputs_that_are_no_numbers_are_refused(tmp_path, monkeypatch):
    asked = []

    def eager(model, device):
        asked.append(device)
        return lambda batch: [batch["x"] * 2]

    pool = [{"x": np.full((1, 3), float(i), np.float32)} for i in range(4)]
    monkeypatch.setattr(by_hand, "torch_fp32", eager)
    monkeypatch.setattr(by_hand, "batches", lambda *a: pool)
    assert by_hand.difference(lambda b: [b["x"] * 2], "vgg19", tmp_path) == 0.0
    assert by_hand.difference(lambda b: [b["x"] * 2.2], "vgg19", tmp_path) > 0.1
    assert asked == ["cpu"] and [p.name for p in tmp_path.iterdir()] == ["truth.npz"]
    with pytest.raises(ValueError, match="not finite"):
        by_hand.difference(lambda b: [b["x"] + np.inf], "vgg19", tmp_path)


@pytest.mark.gpu("torch_eager")
def test_the_staged_input_is_that_of_the_call():
    run = by_hand._torch_loop(torch, torch.nn.Identity(), "cuda", torch.float16, torch.channels_last)
    for value in (1.0, 2.0):
        assert (run({"x": np.full((1, 3, 8, 8), value, np.float32)})[0] == value).all()
