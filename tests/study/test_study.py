"""Grids from keys and from study.toml."""

import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from edgescope.errors import UsageError
from edgescope.models import zoo
from edgescope.records import Trial
from edgescope.study import grid

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
    plan = grid.read(tmp_path / "study.toml")
    assert len(plan.trials) == 2 * 2 * 2 * 2
    assert len({t.id for t in plan.trials}) == 16
    assert str(plan.store) == "here"
    assert plan.sweep == {"cooldown": 1.5}
    assert {t.options["delay_us"] for t in plan.trials} == {10, 20}


def test_a_repeated_value_is_one_cell():
    assert len(grid.grid({"model": "null", "batch": [1, 1]})) == 1


@pytest.mark.wings
def test_without_an_engine_or_a_device_a_model_runs_at_home():
    trial = grid.grid({"model": "http://127.0.0.1:9/v1", "workload": "generate", "precision": "as_is"})[0]
    assert (trial.backend, trial.device) == ("openai", "server")


NULL = "[trial]\nmodel = 'null'\nbackend = 'null'\n"


@pytest.mark.wings
@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("[trial\n", "is not TOML.*line 1"),
        ("x = 1", r"no section \[trial\].*line 1: x is outside"),
        ("batch = [1]\n" + NULL, r"line 1: .*move it below \[trial\]"),
        (NULL + "[sweeep]\n", r"line 4: .*no section \[sweeep\].*Try: sweep"),
        (NULL + "batsh = 1\n[sweep]\ncoldown = 3", "line 4: .*'batsh'.*line 6.*'coldown'.*Try: batch"),
        (NULL + "threads = 2", r"line 4: .*no key 'threads'.*\[trial.options\] threads"),
        (NULL + "cooldown = 2.0", r"line 4: .*no key 'cooldown'.*move it below \[sweep\]"),
        (NULL + "batch = []", "line 4: .* batch is empty"),
        (NULL + "[trial.options]\nthreads = []", "line 5: .* threads is empty"),
        (NULL + "batch = [1,\n2,\n0]", "line 6: batch must .* least 1"),
        (
            NULL + "batch = [1,\n'4']",
            "line 5: batch must .* number, not '4'.*batch = 4, ",
        ),
        (NULL + "batch = true", "line 4: batch must .* number, not true"),
        (NULL + "min_s = 'long'", "line 4: min_s must be a number"),
        (NULL + "min_s = 20", "line 4: need 0 <= min_s <= max_s"),
        (NULL + "options = 3", "line 4: options must .* table"),
        (NULL + "replicates = 0", "line 4: replicates must .* least 1"),
        (NULL + "replicates = [1, 2]", "line 4: replicates takes one value"),
        (NULL + "replicate = 1", "line 4: .*no key 'replicate'.*Try: replicates"),
        ("[trial]\nbatch = 1", "line 1: .trial. .*no model"),
        ("[trial]\nmodel = 3", 'line 2: model must be text, not 3.*model = "3"'),
        ("[trial]\nmodel='null'\nbackend=[\n'null',\n'opnvino']", "line 5: no backend .*Try: openvino"),
        ("[trial]\nmodel=['null',\n'resnet5']\nbackend='null'", "line 3: no model .*'resnet5'"),
        (NULL + "scenario = 'fixed_rate'", "line 4: fixed_rate needs a rate"),
        (NULL + "shapes = {a = [2, 3]}", "line 4: the first axis"),
        (NULL + "shapes = {a = ['x']}", "line 4: .*shape of a must .* list"),
        (
            NULL + "sharing = ['time_slicing',\n'mps']",
            'line 5: .*: mps .*exclude.. sharing = "mps"',
        ),
        (NULL + "scenario = 'idle_gap'\nin_flight = 2", "line [45]: idle_gap .* in flight"),
        (NULL + "io = 'pinned'", "line 4: .*io pinned needs .* own memory"),
        (NULL + "rate = [1, 2]", "line 4: .*single_stream takes no rate"),
        (
            "[trial]\nmodel='null'\nbackend=['openvino',\n'onnxruntime']\nprecision=['int8','bf16']",
            "line 4: .*no bf16",
        ),
        ("[trial]\nmodel='null'\nbackend='openvino'\ndevice='cuda'", "line 3: openvino does not run on cuda"),
        (
            NULL + "[[exclude]]\nbatch = 1\n",
            "line 4: .*excluded .*1 by line 4.* empty",
        ),
        (NULL + "[[exclude]]\n", "line 4: .*names no cells"),
        (NULL + "[exclude]\nbatch = 1\n", "line 4: exclude .* repeated"),
        (NULL + "[[replicate]]\nbatch = 1\n", "line 4: .*needs replicates"),
        (NULL + "[objective]\nname = 'througput'", "line 5: .*no objective.*Try: throughput"),
        (
            NULL + "[[constraint]]\nbound = 'p99<=33ms'\n[[constraint]]\nbound = 'p99>=3ms'",
            "line 7: .*bounded by < or <=",
        ),
        (
            NULL + "[sweep]\nreuse_workers = 'true'\ntimeout = '5 parsecs'",
            "line 5: reuse_workers must be true.*line 6: timeout",
        ),
    ],
)
def test_a_bad_study_says_what_is_wrong_and_on_which_line(tmp_path, text, says):
    (tmp_path / "study.toml").write_text(text)
    with pytest.raises(UsageError, match=says):
        grid.read(tmp_path / "study.toml", zoo.pin)


def test_a_missing_file_of_a_model_is_told_with_its_line_too(tmp_path):
    (tmp_path / "study.toml").write_text("[trial]\nbackend = 'null'\nmodel = ['null',\n 'gone.onnx']")
    with pytest.raises(UsageError, match=r"line 4: .* gone\.onnx "):
        grid.read(tmp_path / "study.toml", zoo.pin)


def test_exclude_and_replicate_pick_cells_by_any_key(tmp_path):
    (tmp_path / "study.toml").write_text(TOML + EXTRA)
    plan = grid.read(tmp_path / "study.toml")
    cells = {}
    for t in plan.trials:
        cells.setdefault((t.model, t.batch, t.options["delay_us"]), []).append(t.replicate)
    assert cells == {
        ("null", 1, 10): [0, 1, 2, 3],
        ("null", 4, 10): [0, 1, 2, 3],
        ("mobilenet_v2", 1, 10): [0, 1],
        ("mobilenet_v2", 1, 20): [0, 1],
        ("mobilenet_v2", 4, 20): [0, 1],
    }
    assert plan.objective == "throughput" and plan.constraints == ("p99<=33ms", "memory<=2GB")
    assert len(plan.notes) == 1 and re.match(r"W-STUDY-1: .* line 21: .*\[\[exclude\]\]", plan.notes[0])


EXTRA = """
[[exclude]]
model = "null"
options.delay_us = 20
[[exclude]]
model = ["mobilenet_v2", "resnet50"]
batch = 4
options = {delay_us = 10}
[[exclude]]
batch = 64
[[replicate]]
model = "null"
replicates = 4
[objective]
name = "throughput"
[[constraint]]
bound = "p99<=33ms"
[[constraint]]
bound = "memory<=2GB"
"""


def test_a_missing_study_is_a_usage_error(tmp_path):
    with pytest.raises(UsageError, match="cannot be read"):
        grid.read(tmp_path / "none.toml")


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
@pytest.mark.slow
def test_ids_are_distinct_and_stable(batches, precisions, replicates):
    trials = grid.grid({"model": "null", "batch": batches, "precision": precisions, "replicates": replicates})
    assert len(trials) == len(set(batches)) * len(set(precisions)) * replicates == len({t.id for t in trials})
    assert all(Trial.from_json(t.to_json()).id == t.id for t in trials)
