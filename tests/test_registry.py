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
        *(ROOT / "docs").glob("*.md"),
        ROOT / "README.md",
    ]
    named = {
        extra
        for file in files
        for found in re.findall(r"pip install '(?:edgescope|\.)\[([\w,]+)\]'", file.read_text())
        for extra in found.split(",")
    }
    assert {"torch", "onnx"} <= named <= extras
