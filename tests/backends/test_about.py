"""What is known of a backend without its engine."""

import subprocess
import sys

import pytest

from edgescope import registry
from edgescope.backends.base import About, Backend
from edgescope.errors import UnavailableError, UsageError
from edgescope.records import PRECISIONS

ENGINES = ("torch", "onnx", "onnxruntime", "openvino", "tensorrt", "ai_edge_litert", "torch_tensorrt")


@pytest.mark.process
@pytest.mark.wings
def test_class_data_is_read_in_a_process_without_any_engine():
    code = f"""
import sys
from edgescope import registry
sys.modules |= dict.fromkeys({ENGINES})
print(*(len(registry.about(name).CANDIDATES) for name in registry.BACKENDS))
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert len(done.stdout.split()) == len(registry.BACKENDS)


@pytest.mark.parametrize("name", sorted(registry.BACKENDS))
@pytest.mark.wings
def test_class_data_says_what_can_be(name):
    data, entry = registry.about(name), registry.BACKENDS[name]
    assert issubclass(data, About)
    assert {*data.PRECISIONS, *data.CANDIDATES} <= set(entry.devices)
    assert {p for able in data.PRECISIONS.values() for p in able} <= set(PRECISIONS)
    assert {"network", "onnx", "tflite", "gguf", "endpoint"} >= data.READS and data.READS
    by_pip = "pip install" in entry.fix
    assert bool(data.PACKAGES) or not by_pip  # a program says its version itself
    slow = {(k, v) for k, v in data.SLOW_OPTIONS.items()}
    tried = {item for rows in data.CANDIDATES.values() for _, options in rows for item in options.items()}
    assert slow <= tried


@pytest.mark.parametrize("name", sorted(registry.BACKENDS))
def test_a_backends_class_has_its_class_data(name):
    try:
        backend = registry.load(registry.BACKENDS, name, "backend")
    except UnavailableError as error:
        pytest.skip(f"this machine lacks it: {error}")
    assert isinstance(backend(), Backend)
    inherited = {
        (c.__module__, c.__qualname__) for c in backend.__mro__
    }  # another test may have read the module anew
    about = registry.about(name)
    assert name == "null" or (about.__module__, about.__qualname__) in inherited


@pytest.mark.wings
def test_each_answer_about_a_kind_of_engine_names_the_engines():
    def those(name):
        return {backend for backend in registry.BACKENDS if getattr(registry.about(backend), name)}

    assert those("BASELINE") == {"torch_eager"}
    assert {*registry.BACKENDS} - those("COMPILES") == {"torch_eager", "torch_decoder"}
    assert those("CAPTURES") == {"tensorrt", "trtexec"}
    assert those("TRAINS") == {"torch_eager", "torch_compile"}
    assert {name: registry.about(name).TRACER for name in those("TRACER")} == {
        **dict.fromkeys(("torch_eager", "torch_compile"), "kineto"),
        **dict.fromkeys(("onnxruntime", "openvino"), "engine"),
    }
    assert registry.facts("sold by nobody") is About and registry.facts("openvino") is registry.about(
        "openvino"
    )


def test_of_a_backend_that_says_nothing_the_usual_is_known():
    assert registry.about("null") is About
    with pytest.raises(UsageError, match="no backend is called 'nul'"):
        registry.about("nul")
