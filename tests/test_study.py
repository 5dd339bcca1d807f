"""Grids from keys and from study.toml."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from edgescope import study
from edgescope.errors import UsageError
from edgescope.records import Trial

TOML = """
[store]
path = "here"
[sweep]
cooldown = 1.5
[trial]
model = ["null", "mobilenet_v2"]
backend = "null"
batch = [1, 4]
replicates = 2
[trial.options]
delay_us = [10, 20]
"""


def test_lists_make_axes(tmp_path):
    (tmp_path / "study.toml").write_text(TOML)
    plan = study.read(tmp_path / "study.toml")
    assert len(plan.trials) == 2 * 2 * 2 * 2
    assert len({t.id for t in plan.trials}) == 16
    assert str(plan.store) == "here"
    assert plan.sweep == {"cooldown": 1.5}
    assert {t.options["delay_us"] for t in plan.trials} == {10, 20}


def test_a_repeated_value_is_one_cell():
    assert len(study.grid({"model": "null", "batch": [1, 1]})) == 1


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("[trial\n", "is not TOML"),
        ("x = 1", r"needs a section \[trial\]"),
        ("[trial]\nmodel='null'\n[extra]\n", "needs a section"),
        ("[trial]\nmodel='null'\nbatsh=1", r"unknown keys \['batsh'\]"),
        ("[trial]\nmodel='null'\nbatch=[]", "axis batch is empty"),
        ("[trial]\nmodel='null'\nbatch=[0]", "batch must be at least 1"),
        ("[trial]\nmodel='null'\nreplicates=0", "replicates"),
        ("[trial]\nmodel='null'\nbatch='four'", "batch must be a int, not 'four'"),
        ("[trial]\nmodel='null'\nmin_s='long'", "min_s must be a int or float"),
        ("[trial]\nmodel=3", "model must be a str"),
        ("[trial]\nmodel='null'\nbackend='nil'", "no backend is called 'nil'"),
        ("[trial]\nmodel='null'\nscenario='fixed_rate'", "needs a rate"),
    ],
)
def test_a_bad_study_says_what_is_wrong(tmp_path, text, says):
    (tmp_path / "study.toml").write_text(text)
    with pytest.raises(UsageError, match=says):
        study.read(tmp_path / "study.toml")


def test_a_missing_study_is_a_usage_error(tmp_path):
    with pytest.raises(UsageError, match="cannot be read"):
        study.read(tmp_path / "none.toml")


def test_a_whole_number_and_its_float_are_one_question():
    assert (
        Trial(model="null", min_s=1, max_s=2, rate=30).id
        == Trial(model="null", min_s=1.0, max_s=2.0, rate=30.0).id
    )


@given(
    st.lists(st.integers(1, 64), min_size=1, max_size=4),
    st.lists(st.sampled_from(["fp32", "bf16", "int8"]), min_size=1, max_size=3),
    st.integers(1, 3),
)
def test_ids_are_distinct_and_stable(batches, precisions, replicates):
    trials = study.grid(
        {"model": "null", "batch": batches, "precision": precisions, "replicates": replicates}
    )
    assert len(trials) == len(set(batches)) * len(set(precisions)) * replicates == len({t.id for t in trials})
    assert all(Trial.from_json(t.to_json()).id == t.id for t in trials)
