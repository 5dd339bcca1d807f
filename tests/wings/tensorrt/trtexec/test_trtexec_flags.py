"""Command lines by version: no version is ever given a flag it does not have."""

import itertools

import pytest
from fake_trtexec import ALWAYS, VERSIONS, Fake, flags_of

from edgescope.errors import UnsupportedError
from edgescope.wings.tensorrt.trtexec import program
from edgescope.wings.tensorrt.trtexec.log import version_of
from edgescope.wings.tensorrt.trtexec.program import Tool


def tool(version):
    words = " ".join(f"--{word}" for names in (*ALWAYS, VERSIONS[version]) for word in names.split())
    named = frozenset(f"--{name}" for name in flags_of(version))
    return Tool("trtexec", version_of(version), named, words, "8.7", "Fake")


def names(argv):
    return {arg.split("=")[0] for arg in argv}


SPELT = {
    # setting: 8.0, 8.2, 8.5, 8.6, 10.3, 11.1
    "workspace": ["--workspace=64"] * 2 + ["--memPoolSize=workspace:64"] * 4,
    "build_only": ["--buildOnly"] * 3 + ["--skipInference"] * 3,
    "streams": ["--streams=64"] * 3 + ["--infStreams=64"] * 3,
    "layer_info": [None] + ["--exportLayerInfo=64"] * 5,
    "explicit_batch": ["--explicitBatch"] * 2 + [None] * 4,
    "serial": ["--exposeDMA"] * 6,
}


@pytest.mark.parametrize("setting", SPELT)
def test_spellings(setting):
    found = [program.spell(tool(version), setting, 64) for version in VERSIONS]
    assert found == [[] if flag is None else [flag] for flag in SPELT[setting]]


DETAIL = ["--nvtxMode=verbose", "--profilingVerbosity=verbose", *["--profilingVerbosity=detailed"] * 4]


def test_detail():
    assert [program.detail(tool(version)) for version in VERSIONS] == [[flag] for flag in DETAIL]


@pytest.mark.parametrize("version", VERSIONS)
@pytest.mark.parametrize(("switch", "on"), list(itertools.product(program.SWITCHES, (True, False))))
def test_switches_are_stated_in_every_version(version, switch, on):
    found = program.state(tool(version), switch, on)
    assert names(found) <= tool(version).flags
    default_on = version.startswith("11") != (switch == "transfers")  # 11 turned all three round
    if on != default_on:
        assert found, f"{version} would do the opposite unless told"


def test_the_defaults_of_11_are_overridden():
    assert program.state(tool("110100"), "graph", False) == ["--noCudaGraph"]
    assert program.state(tool("110100"), "transfers", True) == ["--includeDataTransfers"]
    assert program.state(tool("8001"), "graph", False) == []
    assert program.state(tool("8001"), "transfers", False) == ["--noDataTransfers"]


def test_precisions():
    assert program.precision(tool("8001"), "fp32", typed=False) == ["--noTF32"]
    assert program.precision(tool("8001"), "tf32", typed=False) == []
    assert program.precision(tool("8001"), "fp16", typed=False) == ["--fp16", "--noTF32"]
    assert program.precision(tool("8001"), "int8", typed=False) == ["--int8", "--noTF32"]
    assert program.precision(tool("100300"), "bf16", typed=False) == ["--bf16", "--noTF32"]
    assert program.precision(tool("100300"), "fp16", typed=True) == ["--stronglyTyped", "--noTF32"]
    assert program.precision(tool("110100"), "fp16", typed=True) == ["--noTF32"]
    assert program.precision(tool("110100"), "tf32", typed=True) == []
    assert program.precision(tool("110100"), "fp32", typed=True) == ["--noTF32"]


@pytest.mark.parametrize(("version", "name"), [("8001", "bf16"), ("8601", "bf16"), ("8601", "typed")])
def test_a_precision_that_a_version_lacks_is_refused(version, name):
    with pytest.raises(UnsupportedError):
        program.precision(tool(version), "fp16" if name == "typed" else name, typed=name == "typed")


def test_shapes_and_names():
    assert program.shapes({"a": (1, 3), "b:0": (2,)}) == "a:1x3,'b:0':2"
    with pytest.raises(UnsupportedError, match="E-TRTX-9"):
        program.quoted("a,b")


def test_a_number_of_queries_leaves_no_room_for_seconds():
    counted = program.measuring(tool("8001"), program.Measure(0.5, 3.0, 7, 2, True))
    assert {"--duration=0", "--iterations=7", "--warmUp=500", "--streams=2"} <= set(counted)
    assert "--exposeDMA" not in counted
    timed = program.measuring(tool("8001"), program.Measure(0.5, 3.0, None, 1, False))
    assert {"--duration=3", "--exposeDMA"} <= set(timed)


def test_the_fake_refuses_flags_that_its_version_lacks(capsys):
    assert Fake("110100").main(["--onnx=a.onnx", "--fp16"]) == 1
    assert "Unknown option: --fp16" in " ".join(capsys.readouterr().err.split())
