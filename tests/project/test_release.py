"""What a release says of itself agrees: version, changelog, fragments, citation, workflow."""

import re
import subprocess
import sys
from pathlib import Path

import pytest
import yaml

from edgescope import __version__
from edgescope.metrics import tomllib

ROOT = Path(__file__).parents[2]
WORKFLOW = ROOT / ".github/workflows/ci.yml"
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())
CITATION = ROOT / "CITATION.cff"
STEPS = [step for job in yaml.safe_load(WORKFLOW.read_text())["jobs"].values() for step in job["steps"]]


def test_every_file_names_the_same_version():
    newest = re.search(r"^## (\S+)", (ROOT / "CHANGELOG.md").read_text(), re.MULTILINE)[1]
    cited = yaml.safe_load(CITATION.read_text())["version"]
    assert newest == cited == __version__ == PROJECT["project"]["version"]


def test_the_first_release_is_told_on_one_screen():
    text = (ROOT / "CHANGELOG.md").read_text()
    first = text[text.index("## 0.1.0") :]
    assert len(first.splitlines()) <= 40


@pytest.mark.slow
@pytest.mark.parametrize(
    ("schema", "path"),
    [("github-workflows", WORKFLOW), ("citation-file-format", CITATION)],
    ids=["workflow", "citation"],
)
def test_its_schema_holds(schema, path):
    command = [sys.executable, "-m", "check_jsonschema", "--builtin-schema", f"vendor.{schema}", str(path)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr


def test_the_workflow_reads_only_and_pins_a_major_version_of_each_action():
    assert yaml.safe_load(WORKFLOW.read_text())["permissions"] == {"contents": "read"}
    for step in STEPS:
        assert re.fullmatch(r"actions/[\w-]+@v\d+", step.get("uses", "actions/none@v0")), step


def test_every_target_that_the_workflow_makes_is_in_the_makefile():
    made = {
        target
        for step in STEPS
        if step.get("run", "").startswith("make ")
        for target in step["run"].split()[1:]
    }
    targets = set(re.findall(r"^([\w -]+):", (ROOT / "Makefile").read_text(), re.MULTILINE))
    assert made <= {name for names in targets for name in names.split()}
    assert {"lint", "types", "test", "test-all", "dist"} <= made


def test_the_workflow_installs_every_extra_but_those_for_contributors():
    (install,) = [step["run"] for step in STEPS if "for extra in" in step.get("run", "")]
    tried = set(re.search(r"for extra in (.*); do", install)[1].split())
    left = {
        "dev",
        "docs",
        "networks",  # a part of torch
        "page",
        "rtx",
    }  # rtx: who downloads TensorRT-RTX accepts NVIDIA's licence, and CI does not
    assert tried == PROJECT["project"]["optional-dependencies"].keys() - left


def test_a_fragment_is_named_after_its_kind():
    kinds = [kind["directory"] for kind in PROJECT["tool"]["towncrier"]["type"]]
    for path in (ROOT / "changes").iterdir():
        assert path.name == "README.md" or re.fullmatch(rf"[\w+-]+\.({'|'.join(kinds)})\.md", path.name), (
            path.name
        )
    readme = (ROOT / "changes/README.md").read_text()
    assert kinds == re.findall(r"`NAME\.(\w+)\.md`", readme)


@pytest.mark.slow
def test_the_next_section_can_be_written():
    command = [sys.executable, "-m", "towncrier", "build", "--draft", "--version", "next"]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    assert done.returncode == 0 and "## next" in done.stdout, done.stdout + done.stderr
