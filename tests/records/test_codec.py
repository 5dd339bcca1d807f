"""Every result written follows the published schema."""

import json
from enum import Enum

import jsonschema
import pytest
from hypothesis import given
from hypothesis import strategies as st

from edgescope.errors import Message, StoreError
from edgescope.records import (
    SCHEMA_VERSION,
    Absent,
    Channel,
    Measured,
    Status,
    Trial,
    Verification,
    Window,
    Worker,
    codec,
)
from edgescope.records.codec import result_schema
from making import result

SCHEMA = json.loads(json.dumps(result_schema()))
VALID = jsonschema.Draft202012Validator(SCHEMA)


def test_the_schema_is_the_same_each_time_and_every_result_follows_it():
    schema = json.loads(json.dumps(result_schema()))
    assert schema == SCHEMA and set(schema["required"]) == set(schema["properties"])
    assert [sorted(kind["required"]) for kind in schema["$defs"]["field"]["oneOf"]] == [
        ["hi", "lo", "n", "unit", "value"],
        ["absent"],
    ]
    jsonschema.Draft202012Validator(schema).validate(json.loads(json.dumps(codec.to_json(result()))))


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


@pytest.mark.parametrize(
    ("path", "shape"),
    [
        ("trial_id", {"type": "string", "pattern": "^[0-9a-f]{16}$", "description": "hash of the trial"}),
        ("cell_id/pattern", "^[0-9a-f]{16}$"),
        ("cell_id/description", "hash of the trial without its replicate number"),
        ("machine_id/type", "string"),
        ("schema_version", {"const": SCHEMA_VERSION}),
        ("metrics/additionalProperties", {"$ref": "#/$defs/field"}),
        ("artifact/additionalProperties", {}),
        ("machine/properties/stable/type", "object"),
        ("span_names", {"type": "array", "items": {"type": "string"}}),
        ("channels/items/required", ["name", "unit", "scope", "kind", "source", "status", "reason"]),
        ("workers/items/properties/counted/anyOf", [{"type": "integer"}, {"type": "null"}]),
        ("workers/items/properties/load_s", {"$ref": "#/$defs/field"}),
        ("status/enum/0", "ok"),
        ("verdict/properties/trust/enum", ["CLEAN", "THROTTLED", "DISTURBED", "UNKNOWN"]),
        ("trial/properties/batch/description", "Samples in one query."),
        ("trial/properties/shapes/additionalProperties/items", {"type": "integer"}),
        ("model/anyOf/0/properties/trained/type", "boolean"),
        ("trial/properties/io", {"enum": ["host", "pinned", "device"]}),
        ("trial/properties/options/additionalProperties/anyOf/3", {"type": "boolean"}),
        ("window/anyOf/1", {"type": "null"}),
        ("window/anyOf/0/additionalProperties", False),
    ],
)
def test_the_schema_says_of_each_type_what_it_is(path, shape):
    found = result_schema()["properties"]
    for word in path.split("/"):
        found = found[int(word) if word.isdigit() else word]
    assert found == shape


@pytest.mark.parametrize(
    "figure", [{"absent": ""}, {"absent": "x", "n": 1}, {"value": 1.0, "unit": "s", "lo": None, "hi": None}]
)
def test_the_schema_refuses_half_a_figure(figure):
    data = json.loads(json.dumps(codec.to_json(result())))
    data["metrics"] = {"power_w": figure}
    with pytest.raises(jsonschema.ValidationError):
        VALID.validate(data)


CHECK = Verification(
    True, "top1", {"top1": Measured(0.9, "share"), "rank": Absent("no")}, 0.99, "fine", "fp32"
)


def test_what_the_gate_said_survives_json():
    plain = json.loads(json.dumps(codec.judged_to_json(CHECK)))
    assert plain["fields"]["rank"] == {"absent": "no"} and codec.judged_from_json(plain) == CHECK
    unjudged = Message("E-GATE-1", "no labels", fix="--data")
    plain = codec.judged_to_json(unjudged)
    assert plain == {"unjudged": vars(unjudged)} and codec.judged_from_json(plain) == unjudged
    assert codec.judged_to_json(None) is codec.judged_from_json(None) is None


def test_all_parts_of_a_result_survive_json():
    whole = result(
        workers=(Worker(number=1, model="m", pid=7, cpus=(2, 3), load_s=Measured(1.0, "s")),),
        window=Window(1, 5, 10, 20),
        unverified=Message("W-A-1", "a"),
        verification=CHECK,
        reason=Message("E-A-1", "b"),
    )
    plain = json.loads(json.dumps(codec.to_json(whole)))
    assert plain["workers"][0]["cpus"] == [2, 3] and plain["workers"][0]["pss_bytes"] == {
        "absent": "not measured"
    }
    found = codec.from_json(plain)
    same = (
        "workers",
        "window",
        "unverified",
        "verification",
        "reason",
        "metrics",
        "machine",
        "trial",
        "model",
    )
    assert {name for name in same if getattr(found, name) != getattr(whole, name)} == set()
    assert (plain["trial_id"], plain["cell_id"]) == (whole.trial.id, whole.trial.cell)


@pytest.mark.parametrize(
    ("files", "named"), [({"b.log": "text", "a.log": "more"}, ["a.log", "b.log"]), ({}, []), (None, None)]
)
def test_logs_lie_beside_a_result_and_are_named_in_it(files, named):
    artifact = {"path": "x"} | ({} if files is None else {"files": files})
    plain = codec.to_json(result(artifact=artifact))["artifact"]
    assert plain == {"path": "x"} | ({} if named is None else {"files": named})


@pytest.mark.parametrize("version", [None, "2", SCHEMA_VERSION + 1, 2.0])
def test_a_newer_schema_is_left_alone(version):
    with pytest.raises(StoreError) as caught:
        codec.from_json(codec.to_json(result()) | {"schema_version": version})
    assert caught.value.message.code == "E-STORE-3"


@pytest.mark.parametrize(
    ("lacking", "says"),
    [
        ("metrics", "it lacks 'metrics'"),
        ("id", "it lacks 'id'"),
        ("process", ""),
        ("workers", ""),
        ("idle", ""),
    ],
)
def test_only_what_older_results_lack_may_be_lacking(lacking, says):
    data = codec.to_json(result())
    del data[lacking]
    if not says:
        assert codec.from_json(data).process == "fresh"
        return
    with pytest.raises(StoreError) as caught:
        codec.from_json(data)
    assert (caught.value.message.code, caught.value.message.evidence) == ("E-STORE-4", says)


def test_what_is_wrong_with_a_result_is_told_in_its_words():
    with pytest.raises(StoreError) as caught:
        codec.from_json(codec.to_json(result()) | {"status": 7})
    assert "status must be " in caught.value.message.evidence


def test_channels_and_names_are_read_beside_the_result():
    data = codec.to_json(result())
    assert [type(channel) for channel in codec.channels(data)] == [Channel] * len(data["channels"])
    assert codec.span_names({"span_names": ["a", "b"]}) == ("a", "b")
    for read in (codec.channels, codec.span_names):
        with pytest.raises(ValueError, match=" a list"):
            read({})


class Colour(Enum):
    """Not a text."""

    RED = 1


@pytest.mark.parametrize(
    ("value", "plain"),
    [
        (Absent("no"), {"absent": "no"}),
        (Measured(1.0, "s"), {"value": 1.0, "unit": "s", "lo": None, "hi": None, "n": 1}),
        (Window(1, 2, 3, 4), {"first": 1, "stop": 2, "start_ns": 3, "stop_ns": 4}),
        ({1: (Absent("no"), Colour.RED)}, {"1": [{"absent": "no"}, 1]}),
        ({"a"}, ["a"]),
        ([Status.OK, None, 1.5, "x"], ["ok", None, 1.5, "x"]),
        (Window, Window),
        (Trial(model="m", shapes={"x": (1,)}), Trial(model="m", shapes={"x": (1,)}).to_json()),
    ],
)
def test_any_value_becomes_a_plain_one(value, plain):
    assert codec.to_plain(value) == plain
