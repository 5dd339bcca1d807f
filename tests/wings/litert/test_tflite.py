"""A user's own .tflite: what is read of it, what is refused, and that a broken one never crashes the process."""

import subprocess
import sys

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

pytest.importorskip("ai_edge_litert")

from edgescope.errors import ModelError, UnsupportedError, UsageError
from edgescope.models import zoo
from edgescope.models.base import Purpose
from edgescope.wings.litert import backend
from models import tiny_tflite


@pytest.fixture
def made(tmp_path):
    return lambda kind="fp32", **how: str(tiny_tflite.write(tmp_path / f"{kind}.tflite", kind, **how))


def test_names_layout_and_weights_are_the_files_own(made):
    model = zoo.get(made())
    assert [(i.name, i.shape, i.dtype) for i in model.inputs] == [("image", (8, 8, 3), "float32")]
    assert model.info.params == sum(array.size for array in tiny_tflite.weights().values()) + 10
    assert (model.reference, model.quantised, dict(model.kinds)) == ("litert", False, {"fp32": 2})
    assert model.samples(Purpose.BENCH, 2).arrays["image"].shape == (2, 8, 8, 3)
    assert model.samples(Purpose.LABELLED, 2) is None


def test_weights_stored_as_fp16_are_still_multiplied_in_fp32(made):
    assert dict(zoo.get(made("fp16")).kinds) == {"fp32": 2}


@pytest.mark.parametrize(("kind", "dtype"), [("int8", "int8"), ("dynamic", "float32")])
def test_a_quantised_file_has_no_fp32_truth_and_says_so(made, kind, dtype):
    model = zoo.get(made(kind))
    assert (model.reference, dict(model.kinds), model.inputs[0].dtype) == ("none", {"int8": 2}, dtype)
    assert "not verified" in model.info.source


def test_quantised_inputs_use_the_whole_range_of_their_type(made):
    given_ = zoo.get(made("int8")).samples(Purpose.BENCH, 4).arrays["image"]
    assert given_.dtype == np.int8
    assert given_.min() < -100
    assert given_.max() > 100


def test_an_open_batch_axis_is_open_and_a_closed_one_is_checked(made, tmp_path):
    open_, closed = made(batch=None), made("fp16", batch=2)
    assert zoo.get(open_, batch=5).closed_batch is None
    assert zoo.get(closed, batch=2).closed_batch == 2
    with pytest.raises(UsageError, match=r"E-BATCH-2: .*batch 2 .*batch 3.*--batch 2"):
        zoo.get(closed, batch=3)


def test_a_changed_file_is_another_model(made):
    name = made()
    pinned, digest = zoo.pin(name), zoo.get(name).info.digest
    assert zoo.get(pinned).info.digest == digest
    made(seed=1)
    assert zoo.get(name).info.digest != digest
    with pytest.raises(ModelError, match="planned"):
        zoo.get(pinned)


def test_it_is_no_network_of_torch_and_no_onnx(made, tmp_path):
    model = zoo.get(made())
    for ask in (model.module, lambda: model.onnx(tmp_path)):
        with pytest.raises(UnsupportedError, match=r"E-MODEL-6.*--backend litert"):
            ask()


def test_a_shape_that_does_not_fit_names_the_inputs(made):
    with pytest.raises(UsageError, match=r"image=1x8x8x3"):
        zoo.get(made(), {"image": (1, 3, 8, 8)})


def test_a_missing_file(tmp_path):
    with pytest.raises(UsageError, match=r"no\.tflite cannot be read \(No such file") as error:
        zoo.get(str(tmp_path / "no.tflite"))
    assert error.value.code == "E-MODEL-4"


def test_the_metadata_that_lets_xnnpack_narrow_is_seen(made):
    assert not zoo.get(made()).reduced
    assert zoo.get(made("fp16", reduced=True)).reduced


@pytest.mark.process
def test_measuring_a_known_file_does_not_import_litert_to_describe_it(made):
    name = zoo.pin(made())
    zoo.get(name)
    code = f"""
import sys
from edgescope.models import zoo
assert zoo.get({name!r}).inputs[0].shape == (8, 8, 3)
assert not {{"ai_edge_litert", "torch", "onnx"}} & set(sys.modules)
"""
    subprocess.run([sys.executable, "-c", code], check=True)


WHOLE = tiny_tflite.content()


@settings(max_examples=40)
@given(st.binary(max_size=64) | st.integers(0, len(WHOLE) - 1).map(lambda n: WHOLE[:n]))
def test_anything_that_is_no_whole_tflite_is_refused_in_words(tmp_path, data):
    path = tmp_path / "broken.tflite"
    path.write_bytes(data)
    with pytest.raises(ModelError, match=r"E-TFL-1: LiteRT cannot load broken\.tflite"):
        backend.describe(path)


#: operators of an imagined graph: operator i reads some earlier tensors and writes tensor 100 + i
GRAPHS = st.lists(st.lists(st.integers(0, 9), min_size=1, max_size=3), min_size=1, max_size=8)


@given(GRAPHS, st.data())
def test_a_delegate_covers_what_lies_between_its_inputs_and_outputs(reads, data):
    """Any run of consecutive operators put behind a delegate is found again, and nothing else."""
    ops = [
        {
            "index": i,
            "op_name": "CONV_2D",
            "outputs": [100 + i],
            "inputs": sorted({*r, *([99 + i] if i else [])}),
        }
        for i, r in enumerate(reads)
    ]
    first = data.draw(st.integers(0, len(ops) - 1))
    last = data.draw(st.integers(first, len(ops) - 1))
    inside = ops[first : last + 1]
    made = {op["outputs"][0] for op in inside}
    taken = {
        "index": len(ops),
        "op_name": "DELEGATE",
        "inputs": sorted({i for op in inside for i in op["inputs"]} - made),
        "outputs": [100 + last],
    }
    assert backend.delegated([*ops, taken]) == {op["index"] for op in inside}
