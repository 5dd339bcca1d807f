"""What a missing package is told to the person who lacks it, and the version of one that is there."""

import os
import re
import shutil
import sys
import zipfile
from importlib import metadata
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


@pytest.fixture
def folder(tmp_path, monkeypatch):
    monkeypatch.setattr(sys, "path", [str(tmp_path), *sys.path])
    return tmp_path


def about(folder, name, version):
    place = folder / name
    place.parent.mkdir(exist_ok=True)
    place.write_text(f"Metadata-Version: 2.1\nName: x\nVersion: {version}\n\nVersion: of the description\n")


def test_every_package_has_the_version_that_the_standard_library_reads():
    found = {d.name for d in metadata.distributions() if d.name}
    assert len(found) > 30
    assert {name: registry.version(name) for name in found} == {n: metadata.version(n) for n in found}


@pytest.mark.parametrize("name", ["my-own.engine", "My_Own-Engine", "my__own.engine"])
@pytest.mark.parametrize(
    "place",
    [
        "my_own_engine-1.5.dist-info/METADATA",
        "My.Own.Engine-1.5.egg-info/PKG-INFO",
        "my_own_engine.egg-info/PKG-INFO",
        "my_own_engine-1.5-py3.11.egg-info",
    ],
)
def test_a_version_is_found_by_any_spelling_of_the_name_and_wherever_an_installer_wrote_it(
    folder, name, place
):
    assert registry.version(name) is None
    (folder / "unlike_my_own_engine-9.dist-info").mkdir()
    about(folder, place, "1.5")
    assert registry.version(name) == metadata.version(name) == "1.5"


def test_the_first_installation_on_the_path_counts(folder, monkeypatch):
    for name, version in (("a", "1"), ("b", "2")):
        (folder / name).mkdir()
        about(folder / name, "twice-0.dist-info/METADATA", version)
        monkeypatch.setattr(sys, "path", [*sys.path, str(folder / name)])
    assert registry.version("twice") == metadata.version("twice") == "1"


def test_an_installation_that_was_cut_off_has_no_version_and_one_in_an_archive_has(folder, monkeypatch):
    (folder / "half-1.dist-info").mkdir()
    assert registry.version("half") is None
    with zipfile.ZipFile(folder / "packed.zip", "w") as file:
        file.writestr("zipped-3.dist-info/METADATA", "Name: zipped\nVersion: 3\n")
    monkeypatch.setattr(sys, "path", [*sys.path, str(folder / "packed.zip")])
    assert registry.version("zipped") == "3" and registry.version("never-packed") is None


def test_what_was_removed_is_not_found_again(folder):
    about(folder, "gone-1.dist-info/METADATA", "1")
    assert registry.version("gone") == "1"
    shutil.rmtree(folder / "gone-1.dist-info")
    os.utime(folder, ns=(1, 1))  # a clock whose ticks are longer than this test
    assert registry.version("gone") is None
