"""What a missing package is told to the person who lacks it."""

import re
from pathlib import Path

import pytest

import edgescope
from edgescope import registry
from edgescope.errors import UnavailableError

ROOT = Path(__file__).parent.parent


def said(target, fix):
    with pytest.raises(UnavailableError) as caught:
        registry.need(target, "it", fix)
    return str(caught.value)


def test_a_missing_package_is_told_with_the_command_that_installs_it():
    assert said("nowhere:x", "pip install 'edgescope[onnx]'").endswith("Try: pip install 'edgescope[onnx]'")


@pytest.mark.parametrize("extras", ["torch", "torch,onnx"])
def test_who_lacks_pytorch_is_told_how_not_to_install_cuda(extras):
    told = said("nowhere:x", f"pip install 'edgescope[{extras}]'")
    assert re.search(rf"edgescope\[{extras}\]'; .*without an NVIDIA GPU first: .*/whl/cpu$", told)


def test_every_extra_that_is_named_exists():
    listed = (ROOT / "pyproject.toml").read_text().split("[project.optional-dependencies]")[1].split("\n[")[0]
    extras = set(re.findall(r"^(\w+) = \[", listed, re.MULTILINE))
    files = [
        *Path(edgescope.__file__).parent.rglob("*.py"),
        *(ROOT / "docs").rglob("*.md"),
        ROOT / "README.md",
    ]
    named = {
        extra
        for file in files
        for found in re.findall(r"pip install '(?:edgescope|\.)\[([\w,]+)\]'", file.read_text())
        for extra in found.split(",")
    }
    assert {"torch", "onnx"} <= named <= extras


def test_what_is_known_of_a_scenario_without_importing_it():
    def named(fact):
        return {name for name, found in registry.SCENARIOS.items() if getattr(found, fact)}

    assert named("open_loop") == {"fixed_rate", "server", "burst", "trace", "mlperf_server"}
    assert named("rated") == {"fixed_rate", "server", "burst", "mlperf_server"}
    assert set(registry.SCENARIOS) - named("timed") == {"offline", "mlperf_offline"}
    mlperf = {name for name in registry.SCENARIOS if name.startswith("mlperf_")}
    assert named("alone") == {"idle_gap"} | mlperf and named("idles") == {"idle_gap"}
    assert {name for name in registry.SCENARIOS if registry.scenario(name).driver == "external"} == mlperf
    unknown = registry.scenario("of a plug-in that is not here")
    assert unknown.timed and not unknown.open_loop and unknown.driver == "edgescope"


@pytest.mark.wings
@pytest.mark.parametrize("family", registry.FAMILIES, ids=lambda family: family.group)
def test_every_member_of_this_tree_is_there_whether_its_wing_is_a_folder_or_a_file(family):
    """A machine without its GPU's facts, and a scenario that nobody lists, were the price of a name cut in half."""
    assert registry.installed(family) == [*family]
