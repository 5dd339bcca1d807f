"""Every result written follows the published schema."""

import json

import jsonschema
import pytest
from hypothesis import given
from hypothesis import strategies as st

from edgescope.records import Absent, Measured, Status, Trial, codec
from edgescope.records.schema import result_schema
from making import result

SCHEMA = json.loads(json.dumps(result_schema()))
VALID = jsonschema.Draft202012Validator(SCHEMA)


def test_the_schema_is_one():
    jsonschema.Draft202012Validator.check_schema(SCHEMA)
    trial = SCHEMA["properties"]["trial"]
    assert trial["properties"]["batch"] == {"type": "integer", "description": "Samples in one query."}
    assert trial["description"].startswith("One complete question")


@pytest.mark.parametrize("keys", [{}, {"queries": None, "readings": None, "model": None, "effective": None}])
def test_results_follow_the_schema(keys):
    data = json.loads(json.dumps(codec.to_json(result(**keys))))
    VALID.validate(data)


def test_the_schema_refuses_a_bare_zero_for_a_missing_value():
    data = codec.to_json(result())
    data["metrics"]["power_w"] = 0
    with pytest.raises(jsonschema.ValidationError):
        VALID.validate(data)


@pytest.mark.parametrize(
    ("at", "wrong"),
    [
        (("trial", "precision"), "fp31"),
        (("trial", "batch"), 1.5),
        (("trial", "options"), {"a": []}),
        (("trial", "shapes"), {"x": ["1"]}),
        (("verdict", "trust"), "MAYBE"),
        (("verdict", "why"), "unknown key"),
        (("model", "macs"), "many"),
        (("channels",), [{"name": "x"}]),
        (("warnings",), "one"),
        (("trial_id",), "short"),
    ],
)
def test_the_schema_refuses_what_is_no_result(at, wrong):
    data = json.loads(json.dumps(codec.to_json(result())))
    table = data
    for name in at[:-1]:
        table = table[name]
    table[at[-1]] = wrong
    with pytest.raises(jsonschema.ValidationError):
        VALID.validate(data)


def test_every_key_of_a_result_is_needed():
    whole = json.loads(json.dumps(codec.to_json(result())))
    for name in whole:
        with pytest.raises(jsonschema.ValidationError):
            VALID.validate({key: value for key, value in whole.items() if key != name})


def test_every_status_is_in_the_schema():
    assert SCHEMA["properties"]["status"]["enum"] == [s.value for s in Status]


def test_every_trial_key_is_in_the_schema():
    assert set(SCHEMA["properties"]["trial"]["properties"]) == set(Trial(model="null").to_json())


finite = st.floats(allow_nan=False, allow_infinity=False)


@given(
    st.builds(Measured, finite, st.text(), finite, finite, st.integers(0, 2**63 - 1))
    | st.builds(Absent, st.text())
)
def test_fields_survive_json(value):
    assert codec.field_from_json(json.loads(json.dumps(codec.field_to_json(value)))) == value


def test_a_result_survives_json():
    once = codec.to_json(result())
    assert codec.to_json(codec.from_json(json.loads(json.dumps(once)))) == once | {"channels": []}
