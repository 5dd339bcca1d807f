"""What TensorRT's own words become: one error of ours each, with the node, file or board it names."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from edgescope.errors import (
    DeviceError,
    EdgescopeError,
    ModelError,
    SafetyError,
    StoreError,
    UnavailableError,
    UnsupportedError,
)
from edgescope.wings.tensorrt.trtexec import log
from edgescope.wings.tensorrt.trtexec.program import Ran, Tool

TOOL = Tool("trtexec", "8.2.1", frozenset(), "", "5.3", "NVIDIA Tegra X1")


def failed(*lines, code=1):
    return Ran(("trtexec", "--onnx=a.onnx"), code, tuple((0, line) for line in lines), None, 1.0)


ROWS = [
    (
        SafetyError,
        "E-TRTX-10",
        "[E] Error[1]: [defaultAllocator.cpp::allocate::19] Cuda Runtime (out of memory)",
    ),
    (
        SafetyError,
        "E-TRTX-10",
        "[E] Error[2]: Requested amount of GPU memory (4096 bytes) could not be allocated.",
    ),
    (SafetyError, "E-TRTX-10", "terminate called after throwing an instance of 'std::bad_alloc'"),
    (UnsupportedError, "E-ENG-1", "LLVM ERROR: out of memory"),
    (
        UnsupportedError,
        "E-ENG-1",
        "[E] [TRT] 1: [stdArchiveReader.cpp::StdArchiveReader::35] Serialization assertion failed",
    ),
    (
        UnsupportedError,
        "E-ENG-1",
        "[E] Error[1]: Version tag does not match. Note: Current Version: 96, Serialized: 0",
    ),
    (
        UnsupportedError,
        "E-ENG-1",
        "[E] [TRT] 6: The engine plan file is not compatible with this version of TensorRT, expecting library version "
        "8.6.1.6 got 8.6.0.12, please rebuild.",
    ),
    (
        UnsupportedError,
        "E-ENG-1",
        "[E] Error[6]: The engine plan file is generated on an incompatible device",
    ),
    (StoreError, "E-TRTX-11", "[E] Could not open output engine file: /x/a.engine"),
    (StoreError, "E-TRTX-11", "[E] Saving engine to file failed."),
    (UnavailableError, "E-TRTX-2", "[E] Cuda failure: no CUDA-capable device is detected"),
    (DeviceError, "E-TRTX-6", "[E] Unknown option: --fp16 "),
    (
        ModelError,
        "E-TRTX-7",
        "[E] Error[10]: Could not find any implementation for node {ForeignNode[a...b]}.",
    ),
]


@pytest.mark.parametrize(("kind", "code", "line"), ROWS)
def test_words(kind, code, line):
    found = log.failure(failed(line, "[E] Engine set up failed"), TOOL, "build net")
    assert type(found) is kind
    assert found.code == code
    assert found.fix
    assert code == "E-TRTX-6" or line.split("] ")[-1][:30] in found.evidence


NODES = [
    (
        [
            '[E] [TRT] ModelImporter.cpp:773: While parsing node number 24 [Pad -> "y"]:',
            "[E] [TRT] ModelImporter.cpp:779: ERROR: ModelImporter.cpp:180 In function parseGraph:",
            "[6] Invalid Node - Pad_14",
        ],
        ("Pad node y",),
    ),
    (
        ["While parsing node number 24 [Pad]:", "[8] Assertion failed: inputs.at(1)", "[E] Failed to parse"],
        ("Pad node number 24",),
    ),
    (
        ["[I] [TRT] No importer registered for op: NonZero. Attempting", "[6] Invalid Node - NonZero_7",
         "[E] Failed to parse onnx file"],
        ("NonZero_7",),
    ),
    (
        ["[E] In node 3 with name: /tail/Erf and operator: Erf (parseNode): UNSUPPORTED_NODE: Assertion failed"],
        ("Erf node /tail/Erf", "UNSUPPORTED_NODE"),
    ),
    (["[E] [TRT] 3: No importer registered for op: GridSample"], ("GridSample node",)),
]  # fmt: skip


@pytest.mark.parametrize(("lines", "words"), NODES)
def test_an_operator_is_named_with_its_node_and_opset(lines, words):
    found = log.failure(failed("[I] [TRT] Opset version:    16", *lines), TOOL, "build net")
    assert found.code == "E-TRTX-3"
    for word in (*words, "(opset 16)", "TensorRT 8.2.1"):
        assert word in str(found)


def test_a_file_that_is_missing_is_no_unsupported_node():
    line = (
        "[E] Error[3]: In node -1 with name:  and operator:  (parseFromFile): INVALID_VALUE: Assertion failed: "
        "Input file cannot be found, or is not a regular file: a.onnx"
    )
    assert log.failure(failed(line), TOOL, "build net").code == "E-TRTX-7"


def test_warnings_of_memory_during_a_build_that_failed_otherwise_are_not_blamed():
    lines = [
        "[W] [TRT] Skipping tactic 0 due to insufficient memory",
        "[E] Engine could not be created from network",
    ]
    assert log.failure(failed(*lines), TOOL, "build net").code == "E-TRTX-7"


@pytest.mark.parametrize(("code", "kind"), [(-9, SafetyError), (-11, DeviceError)])
def test_signals(code, kind):
    found = log.failure(failed("[I] Building", code=code), TOOL, "build net")
    assert isinstance(found, kind)
    assert "SIGKILL" in str(found) or "signal 11" in str(found)


PRECISIONS = [
    (
        "Half2 support requested on hardware without native FP16 support, performance will be negatively affected.",
        "fp16",
    ),
    (
        "Int8 support requested on hardware without native Int8 support, performance will be negatively affected.",
        "int8",
    ),
    ("BF16 is not supported on this platform", "bf16"),
]


@pytest.mark.parametrize(("words", "precision"), PRECISIONS)
def test_a_precision_the_gpu_lacks(words, precision):
    told = log.read([f"[W] [TRT] {words}"])
    assert log.unsupported_precision(told, precision).code == "E-PREC-1"
    assert log.unsupported_precision(told, "fp32") is None
    others = {"fp16", "int8", "bf16"} - {precision}
    assert all(log.unsupported_precision(told, other) is None for other in others)


LINE = st.text(st.characters(exclude_characters="\r\n"), max_size=60)


@given(st.lists(LINE, max_size=6), st.integers(-64, 255))
@pytest.mark.slow
def test_any_words_make_an_error_of_ours(lines, code):
    found = log.failure(failed(*lines, *(f"[E] {line}" for line in lines), code=code), TOOL, "build net")
    assert isinstance(found, EdgescopeError)
    assert "\n" not in str(found).strip()
