"""llama-bench as an engine: what the real program wrote is read, and the real one runs where it is installed."""

import json
import os
import shutil
import sys

import numpy as np
import pytest

from edgescope import registry
from edgescope.backends.base import Artifact, Spec
from edgescope.errors import DeviceError, UnavailableError, UsageError
from edgescope.records import Absent, Trial
from edgescope.wings.generation import llama_bench, shapes
from edgescope.wings.generation.gguf_file import GgufFile
from edgescope.wings.generation.llama_bench import LlamaBench

REAL = (
    '{"build_commit": "unknown", "build_number": 0, "cpu_info": "Intel(R) Xeon(R) Processor", "gpu_info": "", '
    '"backends": "CPU", "model_filename": "smollm2-q8_0.gguf", "model_type": "llama 256M Q8_0", '
    '"model_size": 143025408, "model_n_params": 134515008, "n_batch": 2048, "n_ubatch": 512, "n_threads": 2, '
    '"cpu_mask": "0x0", "cpu_strict": false, "poll": 50, "type_k": "f16", "type_v": "f16", "n_gpu_layers": -1, '
    '"flash_attn": -1, "n_prompt": 32, "n_gen": 0, "n_depth": 0, "test_time": "2026-11-29T09:41:00Z", '
    '"avg_ns": 6633533237, "stddev_ns": 1550902897, "avg_ts": 4.959522, "stddev_ts": 1.159523, '
    '"samples_ns": [ 7730187193, 5536879281 ],"samples_ts": [ 4.13962, 5.77943 ]}'
)
"""A line that llama.cpp's own program wrote (2026-10), without the fields that nothing reads."""
STAND_IN = """#!{python}
# stands for llama-bench in tests: it repeats the real program's line with times of its own
import json, sys
words = sys.argv[1:]
row = json.loads({line!r})
assert words[words.index("-o") + 1] == "jsonl"
times = int(words[words.index("-r") + 1])
print("warning: not JSON")
print(json.dumps(row | {{"samples_ns": [2_000_000 + k for k in range(times)]}}))
"""


@pytest.fixture(scope="module")
def model(tmp_path_factory):
    path = tmp_path_factory.mktemp("m") / "m.gguf"
    shapes.write(path, shapes.find("tiny-llama"))
    return GgufFile(str(path))


def trial_of(model, **keys):
    known = {"workload_options": {"prompt_tokens": 16, "output_tokens": 4}, "min_s": 0.01, **keys}
    return Trial(
        model=str(model.path), backend="llama_bench", precision="as_is", workload="generate", **known
    )


def driven(model, **keys):
    spec = Spec("as_is")
    [run] = LlamaBench().drive(Artifact(model, spec, model.path, ""), trial_of(model, **keys))
    return run


def test_a_line_of_the_real_program_is_read():
    row = llama_bench.tested(f"ggml: loading\n{REAL}\n")
    test = llama_bench.Tested(row, 10**10 * 2)
    queries, window = llama_bench.rows(test, 8)
    c = queries.columns
    assert np.allclose((c["done_ns"] - c["issued_ns"]) / 1e9, [7.730187193, 5.536879281])
    assert c["issued_ns"][1] == c["done_ns"][0] and c["done_ns"][1] == window.stop_ns == 2 * 10**10
    said = llama_bench.effective(row, Trial(model="null"))
    assert (said.device, said.precision, said.threads) == ("cpu", "Q8_0", 2)
    assert "model_filename" not in llama_bench.described(row)


@pytest.mark.parametrize(
    "text", ["", "[1]", "{", '{"samples_ns": []}', '{"samples_ns": [0]}', '{"samples_ns": ["1"]}', '"x"']
)
def test_what_holds_no_times_is_no_test(text):
    assert llama_bench.tested(text) is None


@pytest.fixture
def stand_in(tmp_path, monkeypatch):
    path = tmp_path / "llama-bench"
    path.write_text(STAND_IN.format(python=sys.executable, line=REAL))
    path.chmod(0o755)
    monkeypatch.setenv(llama_bench.VARIABLE, str(path))
    return path


@pytest.mark.process
def test_each_test_lasts_as_long_as_the_trial_says(model, stand_in):
    run = driven(model)
    assert len(run.queries) == 5 and set(run.queries.columns["samples"].tolist()) == {4}
    assert run.facts["prefill_tps"].value == pytest.approx(16 / 0.002, rel=0.01)
    assert run.facts["decode_tps"].value == pytest.approx(4 / 0.002, rel=0.01)
    assert isinstance(run.facts["itl_p50_s"], Absent)
    assert json.loads(json.dumps(run.notes))["definitions"]["decode_tps"].startswith("llama-bench -n -d")
    assert len(driven(model, max_queries=7).queries) == 7


@pytest.mark.process
def test_a_program_that_fails_is_quoted(model, stand_in):
    stand_in.write_text("#!/bin/sh\necho cannot read the model >&2\nexit 3\n")
    with pytest.raises(DeviceError) as failed:
        driven(model)
    assert failed.value.code == "E-GEN-23" and "cannot read the model" in str(failed.value)


def test_without_the_program_it_is_not_available(monkeypatch):
    monkeypatch.setenv(llama_bench.VARIABLE, "/nowhere/llama-bench")
    with pytest.raises(UnavailableError) as lacking:
        LlamaBench.usable("cpu")
    assert lacking.value.code == "E-GEN-22"


@pytest.mark.parametrize("keys", [{"in_flight": 2}, {"processes": 2}, {"scenario": "offline"}])
def test_load_that_it_cannot_make_is_refused(model, keys):
    with pytest.raises(UsageError) as refused:
        driven(model, **keys)
    assert refused.value.code == "E-GEN-21"


@pytest.mark.process
@pytest.mark.skipif(
    not shutil.which(os.environ.get(llama_bench.VARIABLE, llama_bench.PROGRAM)), reason="no llama-bench here"
)
def test_the_real_program_measures(model):
    run = driven(model, options={"threads": 1}, max_queries=3)
    assert run.effective.threads == 1 and run.effective.device == "cpu" and len(run.queries) == 3
    assert run.facts["decode_tps"].value > 0 and run.facts["prefill_tps"].value > 0


def test_it_is_known_as_a_program_of_its_own():
    assert registry.BACKENDS["llama_bench"].driver == "external"
    assert "gguf" in registry.about("llama_bench").READS
