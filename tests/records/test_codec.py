"""Every result written follows the published schema."""

import json
from importlib.resources import files

import jsonschema
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from edgescope.records import Absent, Measured, Status, Trial, codec
from making import result

SCHEMA = json.loads((files("edgescope.records") / "schema/result.schema.json").read_text())


@pytest.mark.parametrize("keys", [{}, {"queries": None, "readings": None, "model": None, "effective": None}])
def test_results_follow_the_schema(keys):
    data = json.loads(json.dumps(codec.to_json(result(**keys))))
    jsonschema.Draft202012Validator(SCHEMA).validate(data)


def test_the_schema_refuses_a_bare_zero_for_a_missing_value():
    data = codec.to_json(result())
    data["metrics"]["power_w"] = 0
    with pytest.raises(jsonschema.ValidationError):
        jsonschema.validate(data, SCHEMA)


def test_every_status_is_in_the_schema():
    assert SCHEMA["properties"]["status"]["enum"] == [s.value for s in Status]


def test_every_trial_key_is_in_the_schema():
    assert set(SCHEMA["properties"]["trial"]["properties"]) == set(Trial(model="null").to_json())


finite = st.floats(allow_nan=False, allow_infinity=False)


@settings(deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(
    st.builds(Measured, finite, st.text(), finite, finite, st.integers(0, 2**63 - 1))
    | st.builds(Absent, st.text())
)
def test_fields_survive_json(value):
    assert codec.field_from_json(json.loads(json.dumps(codec.field_to_json(value)))) == value


def test_a_result_survives_json():
    once = codec.to_json(result())
    assert codec.to_json(codec.from_json(json.loads(json.dumps(once)))) == once | {"channels": []}
