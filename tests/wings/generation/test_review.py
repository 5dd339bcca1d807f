"""What a whole Result tells: ceilings of the store, memory, and threads that had to share their cores."""

import json
from dataclasses import replace

import pytest

from edgescope.analysis import roofline
from edgescope.records import Absent, Effective, Measured, Status
from edgescope.wings.explain.verb import diagnose
from edgescope.wings.generation import review, shapes
from edgescope.wings.generation.memory import Held, Room
from edgescope.wings.generation.review import Review, crowded
from worlds import world

BUSY = {"others": 0.9, "own": 0.5, "threads": 4}


def run(waits=0.5, **other):
    made = world(**{**BUSY, "parts": {"prefill": 0.1, "token": 0.01}, "workload": "generate", **other})
    figures = {
        "run_wait_share": Measured(waits, "share"),
        "decode_tps": Measured(20.0, "tokens/s", 19.0, 21.0, 90),
        "prefill_tps": Measured(500.0, "tokens/s"),
        "prompt_tokens": Measured(128.0, "tokens", n=3),
        "output_tokens": Measured(128.0, "tokens", n=3),
    }
    return replace(made, metrics={**made.metrics, **figures})


def test_threads_that_shared_their_cores_are_refused_and_explain_names_them():
    made = crowded(run())
    assert made.status is Status.UNSTABLE and made.reason.code == "E-GEN-7"
    assert "90%" in made.reason.evidence and "50%" in made.reason.evidence
    assert (made.metrics["decode_tps"].value, made.metrics["decode_tps"].lo) == (20.0, None)
    found = diagnose(made)
    assert found.cause == "spinning threads"
    assert found.findings[0].remedies[0].change == {"options": {"threads": 1}}


@pytest.mark.parametrize(
    "other", [{"others": 0.05}, {"waits": 0.1}, {"threads": 1, "own": 0.25}, {"device": "cuda"}]
)
def test_what_had_its_cores_or_one_thread_is_not(other):
    made = run(**other)
    assert crowded(made) is made


def test_one_thread_that_was_tried_confirms_it_or_speaks_against_it():
    made = crowded(run())
    slow, fast = (run(threads=1, options={"threads": 1}, rate=rate) for rate in (50.0, 1000.0))
    finding = next(f for f in diagnose(made, [fast]).findings if f.cause == "spinning threads")
    assert finding.confidence.value == "confirmed" and finding.remedies[0].gain.value == pytest.approx(10)
    assert diagnose(made, [slow]).cause != "spinning threads"


def reviewed(made, tmp_path, monkeypatch, bandwidth=None):
    monkeypatch.setenv("EDGESCOPE_STORE", str(tmp_path))
    if bandwidth:
        figures = {"device": "cpu", "flops": {"bf16": {"value": 1e12}}, "launch_s": 0, "h2d": [], "d2h": []}
        figures["bandwidth"] = [{"bytes": 1, "value": bandwidth}]
        path = roofline.kept(tmp_path, made.machine.id, "cpu")
        path.parent.mkdir(parents=True)
        path.write_text(json.dumps({"machine_id": made.machine.id, "figures": figures}))
    held = Held(shapes.find("smollm2-135m").architecture, 143e6, 300e6, 1, arithmetic="bf16")
    return Review(held, Room(1e8, 2e9), (128, 128), lambda result: {"tokens_per_j": Absent("no meter")})(made)


def test_a_result_has_its_shares_where_the_store_holds_the_ceilings(tmp_path, monkeypatch):
    found = reviewed(run(others=0.0), tmp_path, monkeypatch, 10e9).metrics
    cached = 2 * 30 * 3 * 64 * (128 + 64)
    assert found["mbu"].value == pytest.approx(20 * (143e6 + cached) / 10e9, rel=1e-6)
    assert isinstance(found["mfu"], Measured)
    assert found["memory_predicted_bytes"].value > 4e8 and found["closed_rss_bytes"].value > 1e7
    assert found["tokens_per_j"] == Absent("no meter")


def test_without_ceilings_the_command_that_measures_them_is_the_reason(tmp_path, monkeypatch):
    found = reviewed(run(others=0.0), tmp_path, monkeypatch)
    assert "edgescope doctor --roofline cpu" in found.metrics["mbu"].reason and not found.warnings


def test_a_share_above_one_is_an_error_of_the_result(tmp_path, monkeypatch):
    found = reviewed(run(others=0.0), tmp_path, monkeypatch, 1e9)
    assert [w.code for w in found.warnings] == ["E-GEN-6"]
    assert isinstance(found.metrics["mbu"], Absent)


def test_ceilings_that_cannot_be_read_are_none(tmp_path, monkeypatch):
    monkeypatch.setenv("EDGESCOPE_STORE", str(tmp_path))
    made = run()
    path = roofline.kept(tmp_path, made.machine.id, "cpu")
    path.parent.mkdir(parents=True)
    path.write_text("{}")
    assert review.ceilings(made) is None


def test_a_server_is_not_judged_by_the_threads_of_this_machine():
    made = replace(run(), effective=Effective("server", "unknown"))
    server = replace(made, trial=replace(made.trial, device="server"))
    assert crowded(server) is server
