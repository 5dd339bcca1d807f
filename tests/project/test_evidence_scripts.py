"""The scripts behind published figures: their rules, on made-up rounds, and the ceilings for real in miniature."""

import json
import sys
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace

import pytest

from edgescope import registry
from edgescope.analysis import roofline
from edgescope.analysis.finding import Bound, Confidence, Diagnosis, Finding, Remedy
from edgescope.backends.pytorch import ceilings as measuring
from edgescope.records import Absent, Machine, Measured, Trial
from edgescope.wings.doctor import ceilings as runner
from edgescope.wings.studies.jetson_nano.table import study
from making import result

sys.path.insert(0, str(Path(__file__).parents[2] / "benchmarks"))
import diagnosis
import eleven_networks
import expert
import predict_modes
import searches


def test_ceilings_are_measured_kept_and_read_back(tmp_path, monkeypatch):
    monkeypatch.setattr(measuring, "ON_HOST", (64, 128))
    monkeypatch.setattr(measuring, "WORKING_SETS", (2**18, 2**20))
    where = Machine({"cpu": "test"}, {})
    found = roofline.read(runner.keep(measuring.measured("cpu", 0.01), tmp_path, where, "15W"))
    assert found.machine_id == where.id
    mine = replace(result(Trial(model="null", backend="null", mode="15W")), machine=where)
    assert roofline.stored(tmp_path, mine) == found
    assert roofline.stored(tmp_path, replace(mine, trial=Trial(model="null", backend="null"))) is None
    assert found.device == "cpu" and not found.h2d
    assert (
        1e6 < found.flops["fp32"].value < 1e15 and 1e6 < roofline.bandwidth_at(found.bandwidth, 2**20) < 1e14
    )
    assert isinstance(roofline.limit(roofline.Work(10**6, 10**4, 100, 10), found), roofline.Limit)


def test_sizes_that_would_take_long_are_not_tried(monkeypatch):
    monkeypatch.setattr(measuring, "ON_HOST", (8, 16, 32))
    tried = []

    class Slow:
        device, place, seconds = "cpu", registry.place("cpu"), 0.1

        def of(self, work):
            tried.append(work)
            return 0.05 * len(tried)

    assert measuring.peak(Slow(), "fp32")["size"] == 32 and len(tried) == 3
    tried[:] = [None] * 3  # the first product takes longer than a figure may
    assert measuring.peak(Slow(), "fp32")["size"] == 8 and len(tried) == 4


def test_an_int8_rate_below_that_of_16_bit_floats_is_no_ceiling():
    rates = {"fp16": {"absent": "x"}, "bf16": {"value": 4.0}, "int8": {"value": 3.0}}
    assert "absent" in measuring.believable(rates)["int8"]
    assert measuring.believable(rates | {"int8": {"value": 5.0}})["int8"] == {"value": 5.0}


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
    assert expert.table_met(table(8.0, row("resnet50", 7.5), row("vgg19", 3.0)), "cuda")
    assert not expert.table_met(table(8.0, row("resnet50", 6.0)), "cuda")
    assert expert.table_met(table(5.0, row("resnet50", 6.0, 0.85), row("vgg19", 3.0, 0.8)), "cuda")
    assert not expert.table_met(table(5.0, row("resnet50", 6.0, 0.85), row("vgg19", 3.0, 1.2)), "cuda")
    assert not expert.table_met(table(7.0), "cuda")  # a mean that its rows contradict: none is slow
    assert expert.table_met(table(3.1, others=3.1), "cpu") and not expert.table_met(table(2.9), "cpu")


@pytest.mark.parametrize("device", ["cpu", "cuda"])
def test_no_target_is_reached_by_figures_that_cannot_be_trusted(device):
    assert expert.table_met(table(9.0), device)
    bad = {
        "absent": row("vgg19", 9.0) | {"speedup": {"absent": "not measured"}},
        "without interval": row("vgg19", 9.0, width=0),
        "one by chance": row("vgg19", 1.0, 0.9, width=0),
        "throttled": row("vgg19", 9.0, verdicts=("CLEAN", "THROTTLED")),
        "disturbed": row("vgg19", 9.0, verdicts=("DISTURBED", "CLEAN")),
    }
    assert not [why for why, one in bad.items() if expert.table_met(table(9.0, one), device)]
    itself = row("vgg19", 1.0, 0.9, variant="torch_eager fp32 b1", width=0)
    assert expert.table_met(table(9.0, itself), device)
    part = table(9.0)
    part["rows"].pop()
    assert not expert.table_met(part, device)


def test_a_part_of_the_table_has_another_name():
    assert expert.named("cpu", ELEVEN) == "nano_table/cpu"
    assert expert.named("cuda", ELEVEN[:3]) == "nano_table/cuda_subset"


def halved(**shares):
    rows = [
        {
            "model": m,
            "pick_over_best": 1.0,
            "halving": {"seconds": 100 * shares.get(m, 0.3)},
            "exhaustive": {"seconds": 100},
        }
        for m in searches.HALVING_MODELS
    ]
    return rows


@pytest.mark.slow
def test_each_model_is_held_to_the_share_of_time(tmp_path):
    assert searches.halving_met(searches.halving_figures(halved()))
    found = searches.halving_figures(halved(resnet50=0.5))
    assert found["share_of_time"] == pytest.approx(0.35) and found["worst_share_of_time"] == 0.5
    assert not searches.halving_met(found)
    assert not searches.halving_met(searches.halving_figures(halved()[1:]))
    page = tmp_path / "halving.json"
    assert searches.kept(page) == {}
    page.write_text(json.dumps({"machine_id": searches.machine_id(), "figures": found}))
    assert list(searches.kept(page)) == list(searches.HALVING_MODELS)
    page.write_text(json.dumps({"machine_id": "another", "figures": found}))
    assert searches.kept(page) == {}


def test_the_ceilings_of_a_gpu_need_half_precision():
    some = {"fp32": {"value": 1.0}, "tf32": {"value": 1.0}, "fp16": {"absent": "x"}}
    assert expert.roofs_met("cpu", some) and not expert.roofs_met("cuda", some)
    assert expert.roofs_met("cuda", some | {"fp16": {"value": 1.0}}) and not expert.roofs_met("cpu", {})


def planted_row(
    cause="fetch-stalled", part="load", sure=Confidence.LIKELY, gain=2.0, got=2.2, bound=Bound.NONE
):
    remedy = Remedy("less", {}, Measured(gain, "ratio"), bound=bound)
    found = Diagnosis(result(), (Finding(cause, 0.5, sure, (), (remedy,), part),))
    plant = diagnosis.Plant("x", "fetch-stalled", {}, {}, part="load")
    return diagnosis.row(plant, found, remedy, Measured(got, "ratio"), "plant", 1.0)


def test_a_planted_bottleneck_is_found_if_cause_and_stage_are_right():
    assert planted_row()["right"] and planted_row()["within_20_percent"]
    assert not planted_row(part="decode")["right"] and not planted_row("GIL-bound")["right"]
    assert planted_row(got=3.0)["within_20_percent"] is False
    kept = planted_row(got=3.0, bound=Bound.LEAST)
    assert kept["bound_kept"] and kept["within_20_percent"] is None and kept["bound"] == "at least"
    assert planted_row(got=3.0, bound=Bound.MOST)["bound_kept"] is False
    assert planted_row("GIL-bound", sure=Confidence.CONFIRMED)["confidently_wrong"]
    plant = diagnosis.Plant("x", "quota", {}, {})
    unknown = diagnosis.row(plant, Diagnosis(result(), (), "conflict"), None, Absent("not run"), "", 1.0)
    assert not unknown["right"] and not unknown["confidently_wrong"] and unknown["found"] == "unknown"


def test_the_targets_of_the_planted_set():
    good = [planted_row() for _ in range(9)]
    assert diagnosis.met(diagnosis.summary([*good, planted_row("GIL-bound")]))
    assert not diagnosis.met(diagnosis.summary([*good, planted_row("GIL-bound", sure=Confidence.CONFIRMED)]))
    assert not diagnosis.met(diagnosis.summary([*good, {"plant": "y", "planted": "quota", "failed": "oom"}]))
    assert not diagnosis.met(diagnosis.summary([planted_row(got=3.0) for _ in range(9)]))
    bounds = [planted_row(got=3.0, bound=Bound.LEAST) for _ in range(4)]
    assert diagnosis.met(diagnosis.summary([*good, *bounds]))
    broken = [planted_row(got=3.0, bound=Bound.MOST) for _ in range(2)]
    found = diagnosis.summary([*good, *broken])
    assert (found["gains_checked"], found["bounds"], found["bounds_kept"]) == (9, 2, 0)
    assert not diagnosis.met(found)


def test_rows_that_did_not_run_again_keep_their_own_run(tmp_path):
    out = tmp_path / "diagnosis.json"
    assert diagnosis.kept(out) == {}
    names = [p.name for p in diagnosis.PLANTS[:3]]
    page = {
        "figures": {"rows": [{"plant": name, "right": True} for name in names]},
        "measured_at": "2026-01-01",
        "machine": {"cpu": {"cpu": "an old one"}},
        "commit": {"hash": "abc"},
        "command": "python old.py",
    }
    out.write_text(json.dumps(page))
    new = {"plant": names[1], "right": False, "run": {"cpu": "a new one"}}
    rows = diagnosis.merged(diagnosis.kept(out), [new])
    assert [r["plant"] for r in rows] == names and [r["right"] for r in rows] == [True, False, True]
    assert [r["run"]["cpu"] for r in rows] == ["an old one", "a new one", "an old one"]
    out.write_text(json.dumps({**page, "figures": {"rows": rows}, "measured_at": "2027-01-01"}))
    assert diagnosis.kept(out)[names[0]]["run"]["measured_at"] == "2026-01-01"


def test_plants_are_distinct_trials_with_causes_that_exist():
    from edgescope.analysis.finding import CAUSES

    plants = (*diagnosis.PLANTS, *diagnosis.PLANTS_CUDA)
    assert len(diagnosis.PLANTS) >= 24 and len({p.name for p in plants}) == len(plants)
    for plant in plants:
        assert plant.cause in CAUSES and set(plant.also) <= set(CAUSES), plant.name
        assert diagnosis.trial(plant.trial).id != diagnosis.trial(plant.remedy).id or plant.beside, plant.name
        for change in plant.sweep:
            assert diagnosis.trial({**plant.trial, **change}).id != diagnosis.trial(plant.trial).id


def event(cat, name, ts, dur):
    return {"cat": cat, "name": name, "ts": ts, "dur": dur, "ph": "X"}


def test_the_parts_of_a_query_sum_to_it():
    events = []
    for k in range(5):
        at = k * 1000.0
        events.append(event("user_annotation", "query", at, 400))
        events += [event("gpu_memcpy", "H2D", at + 50, 100), event("kernel", "conv", at + 120, 100)]
        events += [event("kernel", "relu", at + 210, 40), event("gpu_memcpy", "D2H", at + 300, 20)]
    found = eleven_networks.of_events(events, 350e-6)
    assert (found["kernels_us"], found["copies_us"], found["idle_us"]) == (130, 90, 180)
    assert found["sum_over_traced"] == 1 and found["traced_over_clean"] == pytest.approx(400 / 350, abs=1e-3)
    assert found["top"][0]["name"] in ("conv", "H2D") and found["launches"] == 2
    assert "failed" in eleven_networks.of_events([], 1e-6)
    assert found["named_over_kernels"] == pytest.approx(140 / 130, abs=1e-3), "two kernels ran at once"
    assert not eleven_networks.of_clean(found, 350.0, 300.0)["closes"]
    found["named_over_kernels"] = 1.0
    clean = eleven_networks.of_clean(found, 350.0, 300.0)
    assert (clean["gaps_us"], clean["host_us"], clean["rest_us"]) == (80, 50, 130) and clean["closes"]
    assert eleven_networks.of_clean(found, 350.0, 400.0)["gaps_us"] is None, (
        "events saw more than the query took"
    )
    assert not eleven_networks.of_clean(found, 200.0, 300.0)["closes"], "kernels longer than the query"


def test_the_pick_of_a_network_is_its_fastest_variant_with_the_right_outputs():
    def variant(us, same=True, closes=False):
        return {
            "clean_us": us,
            "same": same,
            "account": {"closes": closes, "top": [{"name": "conv", "us": us / 2}]},
        }

    found = {
        eleven_networks.BASELINE: variant(700),
        "half": variant(90, same=False),
        "fp32": variant(140, closes=True),
    }
    row = eleven_networks.summary(found)
    assert row["pick"] == "fp32" and row["ratio"] == 5 and row["met"] and row["largest"][0]["share"] == 0.5
    assert not eleven_networks.summary({**found, "fp32": variant(140)})["met"], "slow, and nothing says why"
    assert eleven_networks.summary({})["absent"] == "no baseline"


@pytest.mark.slow
def test_plants_that_no_time_was_left_for_are_on_the_page(tmp_path, monkeypatch):
    page, plant = tmp_path / "page.json", diagnosis.Plant("x", "quota", {}, {})
    for name, stand_in in (("PLANTS", (plant,)), ("_ceilings", lambda *_: None)):
        monkeypatch.setattr(diagnosis, name, stand_in)
    monkeypatch.setattr(diagnosis.planted, "material", lambda: None)
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "argv", ["diagnosis.py", "--seconds", "-1", "--json", str(page)])
    diagnosis.main()
    found = json.loads(page.read_text())
    assert found["figures"]["failed"] == 1 and not found["met"]


def test_a_grid_without_a_meter_is_not_judged_by_its_power():
    def judged(**own):
        return predict_modes.summary({"predict": {k: [v] for k, v in own.items()}}, {"time": [0.9]}, 40, 15)

    assert judged(time=0.01)["targets"]["power_or_energy"] is None and judged(time=0.01)["met"]
    assert not judged(time=0.01, power=0.2)["met"] and judged(time=0.01, power=0.2, energy=0.01)["met"]


def test_what_one_compiled_variant_sets_does_not_reach_the_next(monkeypatch):
    inductor = pytest.importorskip("torch._inductor.config")
    torch = pytest.importorskip("torch")
    chosen = []
    monkeypatch.setattr(torch, "compile", lambda module, **keys: chosen.append(keys["options"]) or module)
    model = SimpleNamespace(module=lambda: torch.nn.Linear(2, 2))
    before = (inductor.freezing, inductor.conv_1x1_as_mm)
    for label, make in eleven_networks.variants(model, [torch.zeros(1, 2)], "cpu"):
        if "compiled" in label:
            make()
    assert [c.get("conv_1x1_as_mm", False) for c in chosen] == [False, True, False]
    assert (inductor.freezing, inductor.conv_1x1_as_mm) == before and all(c["freezing"] for c in chosen)
