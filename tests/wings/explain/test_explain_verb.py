"""edgescope explain: what it prints, what it takes from the store, and what --verify runs."""

from __future__ import annotations

import json
from dataclasses import replace

import pytest

import edgescope
from edgescope.cli.main import main
from edgescope.errors import UsageError
from edgescope.records import Measured
from edgescope.runner.run import ExperimentRunner
from edgescope.store.results import Store
from worlds import world

pytestmark = pytest.mark.process

OF = {"cores_used": 4.0, "run_wait_share": 0.7, "kernel_time_share": 0.02, "page_faults_per_s": 5.0}
CROWDED = {"threads": 16, "own": 1.0, "of": OF, "model": "null", "backend": "null"}


@pytest.fixture
def store(tmp_path):
    """A run with sixteen threads, and one with four that is three and a half times as fast."""
    place = Store(tmp_path / "store")
    place.save(
        replace(
            world(rate=350, **{**CROWDED, "threads": 4}, options={"threads": 4}),
            started_at="2026-01-01T00:00:00+00:00",
        )
    )
    place.save(replace(world(**CROWDED, options={"threads": 16}), started_at="2026-01-02T00:00:00+00:00"))
    return place


def said(capsys, *words):
    code = main(["explain", *words])
    return code, capsys.readouterr().out


@pytest.mark.slow
def test_it_says_the_cause_the_evidence_and_the_remedy(store, capsys):
    code, text = said(capsys, "latest", "--store", str(store.root))
    assert code == 0
    assert "oversubscription" in text and "16 threads compute on 4 cores" in text
    assert "throughput x 3.50" in text and "--threads 4" in text
    assert (
        all(word in " ".join(text.splitlines()[:2]) for word in ("null fp32", "result")) and "…" not in text
    )
    code, text = said(capsys, "latest", "--store", str(store.root), "--json")
    (found,) = json.loads(text)["results"]
    assert found["cause"] == "oversubscription" and found["findings"][0]["remedies"][0]["gain"][
        "value"
    ] == pytest.approx(3.5)


def test_an_unknown_cause_says_why_and_what_would_tell_more(tmp_path, capsys):
    place = Store(tmp_path)
    place.save(world(threads=4, own=1.0, of={**OF, "run_wait_share": 0.0}))
    code, text = said(capsys, "latest", "--store", str(tmp_path))
    assert code == 0 and "Unknown" in text and "edgescope doctor --roofline cpu" in text


@pytest.mark.slow
def test_a_report_is_written_in_every_format(store, tmp_path):
    for suffix in ("html", "md", "json"):
        path = tmp_path / f"why.{suffix}"
        assert main(["explain", "latest", "--store", str(store.root), "-o", str(path)]) == 0
        assert "oversubscription" in path.read_text()


@pytest.mark.parametrize(("gain", "code"), [(3.4, 0), (1.1, 1)])
def test_verify_runs_both_sides_in_turns_and_holds_the_prediction(store, capsys, monkeypatch, gain, code):
    ran = []

    def run(self, trial):
        ran.append(trial)
        rate = 100 * gain if trial.options.get("threads") == 4 else 100
        return replace(world(), trial=trial, metrics={"throughput_sps": Measured(rate, "samples/s")})

    monkeypatch.setattr(ExperimentRunner, "run", run)
    found, text = said(capsys, "latest", "--store", str(store.root), "--verify")
    assert found == code and ("as predicted" in text) and ("not as predicted" in text) == (code == 1)
    threads = [t.options["threads"] for t in ran]
    assert threads == [16, 4, 4, 16, 16, 4] and sorted({t.replicate for t in ran}) == [1, 2, 3]


def test_the_library_gives_rows_and_lines(store):
    found = edgescope.explain("latest", store=store)
    assert found.diagnoses[0].cause == "oversubscription" and "try:" in repr(found)
    (row, *_) = found.records()
    assert (
        row["cause"] == "oversubscription"
        and row["rank"] == 1
        and row["predicted_gain"] == pytest.approx(3.5)
    )
    with pytest.raises(UsageError, match="E-EXPLAIN-1"):
        edgescope.explain(store=store)


def test_a_remedy_that_there_is_not_is_called_so(store):
    (check,) = edgescope.explain("latest", verify=True, remedy=7, store=store).checks
    assert "no remedy 7" in check.words and "1 to 1" in check.words
