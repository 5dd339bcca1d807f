"""What a Trial's id and keys are made of."""

import dataclasses

import pytest
from hypothesis import given
from hypothesis import strategies as st

from edgescope.records import Role, Trial, colocated_with
from edgescope.records.trial import ROLES

PLAIN = Trial(model="m")


def test_every_field_has_one_role():
    assert set(ROLES) == {field.name for field in dataclasses.fields(Trial)}
    assert all(role in Role for role in ROLES.values())


def test_a_default_that_is_said_changes_no_id_and_any_other_value_does():
    assert Trial(model="m", backend="torch_eager", batch=1, options={}).id == PLAIN.id
    others = [Trial(model="n"), Trial(model="m", batch=2), Trial(model="m", workload_options={"a": 1})]
    assert len({PLAIN.id, *(trial.id for trial in others)}) == 4


def test_a_trial_that_was_written_before_a_field_was_there_keeps_its_id():
    old = {k: v for k, v in PLAIN.to_json().items() if k != "workload_options"}
    assert Trial.from_json(old).id == PLAIN.id


def test_replicates_share_a_cell_that_is_no_trials_name():
    first, second = Trial(model="m"), Trial(model="m", replicate=1)
    assert first.cell == second.cell and len({first.id, second.id, first.cell}) == 3


@pytest.mark.parametrize(
    ("roles", "same", "other"),
    [
        (Role.ARTIFACT, {"batch": 4, "mode": "x", "rate": 3.0}, {"precision": "int8"}),
        (Role.BATCH, {"model": "n"}, {"batch": 4}),
        (Role.CONCURRENCY, {"batch": 4}, {"processes": 2}),
        (Role.SHARING | Role.MODE, {"processes": 2}, {"colocated": "n"}),
        (Role.EFFORT, {"seed": 4}, {"min_s": 0.5}),
    ],
)
def test_a_key_sees_its_roles_alone(roles, same, other):
    assert PLAIN.key(roles) == dataclasses.replace(PLAIN, **same).key(roles)
    assert PLAIN.key(roles) != dataclasses.replace(PLAIN, **other).key(roles)
    assert PLAIN.key(roles) == dataclasses.replace(PLAIN, **other).key(roles, but=tuple(other))


WORDS = st.lists(st.text("abc=1", min_size=1, max_size=5), min_size=1, max_size=3)


@given(st.lists(WORDS, max_size=3))
def test_each_model_beside_is_changed_and_nothing_behind_it(parts):
    text = "+".join(" ".join(words) for words in parts)
    changed = colocated_with(text, str.upper)
    assert changed == "+".join(" ".join((words[0].upper(), *words[1:])) for words in parts)
