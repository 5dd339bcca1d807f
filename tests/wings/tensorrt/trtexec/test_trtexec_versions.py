"""What the trtexec of a version has, without asking it: against the stand-ins written from its sources."""

import fake_trtexec
import pytest

from edgescope.errors import UnsupportedError
from edgescope.wings.jetson import boards
from edgescope.wings.tensorrt.trtexec import program, versions
from edgescope.wings.tensorrt.trtexec.log import version_of

#: What the stand-ins have and nothing here asks for, and the other way round.
UNUSED, NOT_IN_FAKES = {"--help", "--verbose", "--best"}, {"--versionCompatible"}


@pytest.mark.parametrize("banner", fake_trtexec.VERSIONS)
def test_the_flags_are_those_of_the_version(banner):
    found = versions.tool(version_of(banner), "8.7", "Orin")
    there = {f"--{name}" for name in fake_trtexec.flags_of(banner)}
    assert found.flags - NOT_IN_FAKES == there - UNUSED


@pytest.mark.parametrize(
    ("version", "spelt"),
    [
        ("8.2.1", ["--buildOnly", "--streams=1", "--profilingVerbosity=verbose"]),
        ("8.5.2", ["--buildOnly", "--streams=1", "--profilingVerbosity=detailed"]),
        ("8.6.2", ["--skipInference", "--infStreams=1", "--profilingVerbosity=detailed"]),
        ("10.16.2", ["--skipInference", "--infStreams=1", "--profilingVerbosity=detailed"]),
    ],
)
def test_settings_are_spelt_as_the_version_has_them(version, spelt):
    tool = versions.tool(version, "8.7", "Orin")
    found = [*program.spell(tool, "build_only"), *program.spell(tool, "streams", 1), *program.detail(tool)]
    assert found == spelt
    assert program.precision(tool, "fp16", typed=False) == ["--fp16", "--noTF32"]


def test_a_flag_that_is_gone_is_not_used():
    tool = versions.tool("11.4.1", "8.7", "Orin")
    assert program.strongly_typed(tool)
    with pytest.raises(UnsupportedError) as error:
        program.precision(tool, "fp16", typed=False)
    assert error.value.code == "E-PREC-1"
    assert program.state(tool, "transfers", True) == ["--includeDataTransfers"]


@pytest.mark.parametrize(
    ("version", "drives"),
    [
        *(("8.5.2", True), ("10.3.0", True), ("10.7", True), ("10.13", False), ("10.16.2", False)),
        *(("11.3.1", False), ("11.4.0", False), ("11.4.1", True), ("11.5", True)),
    ],
)
def test_a_dla_is_driven_until_10_7_and_again_from_11_4_1(version, drives):
    assert versions.drives_dla(version) is drives
    dla = [o for o in versions.offered(version, "8.7", 1) if "dla" in o.options]
    assert [bool(o.why_not) for o in dla] == [not drives]


@pytest.mark.parametrize(
    ("key", "without"), [("nano", {"int8", "tf32"}), ("agx_xavier", {"tf32"}), ("orin_nano", set())]
)
def test_a_gpu_is_offered_what_it_computes_in(key, without):
    board = boards.boards()[key]
    found = versions.offered("8.5.2", board.compute, board.dla)
    assert found[0].precision == "fp32", "the baseline comes first"
    assert {o.precision for o in found if o.why_not} == without
    assert any("dla" in o.options for o in found) == (key == "agx_xavier")


@pytest.mark.parametrize("held", boards.software(), ids=lambda held: held.jetpack[0])
def test_every_jetpack_has_a_trtexec_that_can_build_and_measure(held):
    for key in held.boards:
        board = boards.boards()[key]
        tool = versions.tool(held.tensorrt, board.compute, board.name)
        for setting in ("build_only", "times", "inputs", "outputs", "serial", "streams"):
            assert program.spell(tool, setting, 1), setting
        for one in versions.offered(held.tensorrt, board.compute, board.dla):
            assert one.why_not or program.precision(tool, one.precision, typed=False) is not None
