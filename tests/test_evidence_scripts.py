"""The scripts behind published figures: their rules, on made-up rounds, and the ceilings for real in miniature."""

import json
import sys
from pathlib import Path

import pytest

from edgescope.analysis.predict import roofline
from edgescope.papers.jetson_nano.printed import study

sys.path.insert(0, str(Path(__file__).parent.parent / "benchmarks"))
import ceilings
import halving
import nano_table


def test_ceilings_are_measured_and_read_back(tmp_path, monkeypatch):
    monkeypatch.setattr(ceilings, "SIZES", {"cpu": (64, 128)})
    monkeypatch.setattr(ceilings, "WORKING_SETS", (2**18, 2**20))
    monkeypatch.setattr(sys, "argv", ["ceilings.py", "--seconds", "0.01"])
    kept = {}
    monkeypatch.setattr(ceilings, "publish", lambda name, figures, met: kept.update({name: figures}))
    ceilings.main()
    meanwhile = kept["ceilings_cpu"]["machine_meanwhile"]
    assert len(meanwhile["load_average_before"]) == 3 and meanwhile["spin_slowdown"] > 0
    path = tmp_path / "c.json"
    path.write_text(json.dumps({"machine_id": "here", "figures": kept["ceilings_cpu"]}))
    found = roofline.read(path)
    assert found.device == "cpu" and not found.h2d
    assert (
        1e6 < found.flops["fp32"].value < 1e15 and 1e6 < roofline.bandwidth_at(found.bandwidth, 2**20) < 1e14
    )
    assert isinstance(roofline.limit(roofline.Work(10**6, 10**4, 100, 10), found), roofline.Limit)


def test_an_int8_rate_below_that_of_16_bit_floats_is_no_ceiling():
    rates = {"fp16": {"absent": "x"}, "bf16": {"value": 4.0}, "int8": {"value": 3.0}}
    assert "absent" in ceilings.believable(rates)["int8"]
    assert ceilings.believable(rates | {"int8": {"value": 5.0}})["int8"] == {"value": 5.0}


ELEVEN = [r.ours for r in study().rows]


def row(model, speedup, share=None, verdicts=("CLEAN", "CLEAN"), variant="openvino fp16 b1", width=0.1):
    ends = {"lo": speedup - width, "hi": speedup + width} if width else {"lo": None, "hi": None}
    return {
        "model": model,
        "speedup": {"value": speedup, **ends},
        "of_limit": {"value": share} if share else {"absent": "x"},
        "verdicts": list(verdicts),
        "variant": variant,
    }


def table(mean, *special, others=8.0):
    rows = {m: row(m, others) for m in ELEVEN} | {r["model"]: r for r in special}
    return {"geometric": {"value": mean}, "rows": list(rows.values())}


def test_the_targets():
    assert nano_table.met(table(8.0, row("resnet50", 7.5), row("vgg19", 3.0)), "cuda")
    assert not nano_table.met(table(8.0, row("resnet50", 6.0)), "cuda")
    assert nano_table.met(table(5.0, row("resnet50", 6.0, 0.85), row("vgg19", 3.0, 0.8)), "cuda")
    assert not nano_table.met(table(5.0, row("resnet50", 6.0, 0.85), row("vgg19", 3.0, 1.2)), "cuda")
    assert not nano_table.met(table(7.0), "cuda")  # a mean that its rows contradict: none is slow
    assert nano_table.met(table(3.1, others=3.1), "cpu") and not nano_table.met(table(2.9), "cpu")


@pytest.mark.parametrize("device", ["cpu", "cuda"])
def test_no_target_is_reached_by_figures_that_cannot_be_trusted(device):
    assert nano_table.met(table(9.0), device)
    bad = {
        "absent": row("vgg19", 9.0) | {"speedup": {"absent": "not measured"}},
        "without interval": row("vgg19", 9.0, width=0),
        "one by chance": row("vgg19", 1.0, 0.9, width=0),
        "throttled": row("vgg19", 9.0, verdicts=("CLEAN", "THROTTLED")),
        "disturbed": row("vgg19", 9.0, verdicts=("DISTURBED", "CLEAN")),
    }
    assert not [why for why, one in bad.items() if nano_table.met(table(9.0, one), device)]
    itself = row("vgg19", 1.0, 0.9, variant="torch_eager fp32 b1", width=0)
    assert nano_table.met(table(9.0, itself), device)
    part = table(9.0)
    part["rows"].pop()
    assert not nano_table.met(part, device)


def test_a_part_of_the_table_has_another_name():
    assert nano_table.named("cpu", ELEVEN) == "nano_table_cpu"
    assert nano_table.named("cuda", ELEVEN[:3]) == "nano_table_cuda_subset"


def halved(**shares):
    rows = [
        {
            "model": m,
            "pick_over_best": 1.0,
            "halving": {"seconds": 100 * shares.get(m, 0.3)},
            "exhaustive": {"seconds": 100},
        }
        for m in halving.MODELS
    ]
    return rows


def test_each_model_is_held_to_the_share_of_time():
    assert halving.met(halving.figures(halved()))
    found = halving.figures(halved(resnet50=0.5))
    assert found["share_of_time"] == pytest.approx(0.35) and found["worst_share_of_time"] == 0.5
    assert not halving.met(found)
    assert not halving.met(halving.figures(halved()[1:]))
    assert halving.named("cpu", halving.MODELS) == "halving_cpu"
    assert halving.named("cpu", ["resnet50"]) == "halving_cpu_subset"


def test_the_ceilings_of_a_gpu_need_half_precision():
    some = {"fp32": {"value": 1.0}, "tf32": {"value": 1.0}, "fp16": {"absent": "x"}}
    assert ceilings.met("cpu", some) and not ceilings.met("cuda", some)
    assert ceilings.met("cuda", some | {"fp16": {"value": 1.0}}) and not ceilings.met("cpu", {})
