"""Wheel and sdist: what they hold, their metadata, and whether the wheel alone gives a tool that works."""

import json
import os
import subprocess
import sys
import tarfile
import zipfile
from pathlib import Path

import pytest

from edgescope import __version__

ROOT = Path(__file__).parents[2]
pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def dist(tmp_path_factory):
    """The folder with both: what `make dist` has built, or what is built now."""
    if given := os.environ.get("DIST"):
        return ROOT / given
    folder = tmp_path_factory.mktemp("dist")
    answer(sys.executable, "-m", "build", "--outdir", folder, ROOT)
    return folder


def answer(*command, **settings):
    """What a command prints; it must end well."""
    done = subprocess.run(command, capture_output=True, text=True, check=False, **settings)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def tracked(*folders):
    """The files under `folders` that belong to the repository."""
    return set(answer("git", "ls-files", *folders, cwd=ROOT).splitlines())


def test_the_wheel_holds_the_package_and_the_pages_and_nothing_else(dist):
    (wheel,) = dist.glob("*.whl")
    names = {name for name in zipfile.ZipFile(wheel).namelist() if ".dist-info/" not in name}
    package = {name.removeprefix("src/") for name in tracked("src/edgescope")}
    assert names == package | {f"edgescope/{name}" for name in tracked("docs")}


def test_the_sdist_holds_what_builds_it_and_what_is_read(dist):
    (sdist,) = dist.glob("*.tar.gz")
    with tarfile.open(sdist) as file:
        names = {name.partition("/")[2] for name in file.getnames()}
    more = {"CHANGELOG.md", "CITATION.cff", "LICENSE", "README.md", "SECURITY.md", "pyproject.toml"}
    assert names - {"PKG-INFO", ".gitignore"} == tracked("src", "docs", "examples", "studies") | more


def test_an_index_would_take_the_metadata(dist):
    answer(sys.executable, "-m", "twine", "check", "--strict", *sorted(dist.iterdir()))


def test_the_wheel_alone_gives_a_tool_that_works(dist, tmp_path):
    (wheel,) = dist.glob("*.whl")
    clean = {name: value for name, value in os.environ.items() if not name.startswith("PYTHON")}
    home = tmp_path / "venv"
    answer(sys.executable, "-m", "venv", home, env=clean)
    answer(home / "bin/pip", "install", "--quiet", wheel, env=clean)

    def said(*words):
        return answer(home / "bin/edgescope", *words, cwd=tmp_path, env=clean)

    assert said("--version").split()[:2] == ["edgescope", __version__]
    assert json.loads(said("doctor", "--json"))
    assert said("docs", "first-number").startswith("#")
