"""The core without the wings: it builds, answers and passes its tests; a wing that is missing costs its verb alone."""

import os
import subprocess
import sys
import zipfile
from pathlib import Path

import pytest

from edgescope.registry import VERBS

ROOT = Path(__file__).parents[2]
sys.path.insert(0, str(ROOT / "tools"))
import core  # noqa: E402

pytestmark = pytest.mark.process

FOLDER = ROOT / "src/edgescope/wings"
WINGS = sorted(
    {path.relative_to(FOLDER).parts[0].removesuffix(".py") for path in FOLDER.glob("**/*.py")} - {"__init__"}
)
UNIT = ("records", "study", "test_registry.py", "test_units.py", "test_options.py")
"""Tests of the core that start no engine: a minute at most. `make test-core` runs all."""
NEEDS = {"video": {"anomaly"}}
"""Wing -> the others whose commands import it."""


def answer(*command, **settings):
    """What a command prints; it must end well."""
    done = subprocess.run(command, capture_output=True, text=True, check=False, **settings)
    assert done.returncode == 0, done.stdout[-4000:] + done.stderr[-4000:]
    return done.stdout


@pytest.fixture(scope="module")
def tree(tmp_path_factory):
    return core.copy(tmp_path_factory.mktemp("core") / "tree")


@pytest.fixture(scope="module")
def installed(tree):
    """The environment of a process that has the core's wheel and no wing."""
    answer(sys.executable, "-m", "build", "--wheel", "--no-isolation", "--outdir", tree.parent, tree)
    (wheel,) = tree.parent.glob("*.whl")
    zipfile.ZipFile(wheel).extractall(tree.parent / "site")
    return os.environ | {
        "PYTHONPATH": str(tree.parent / "site"),
        "EDGESCOPE_CACHE": str(tree.parent / "cache"),
    }


def run(installed, tree, code):
    return answer(sys.executable, "-c", code, env=installed, cwd=tree.parent)


@pytest.mark.slow
def test_it_is_the_wheel_without_wings_that_answers(installed, tree):
    code = "import edgescope, importlib.util as u; print(edgescope.__file__, u.find_spec('edgescope.wings'))"
    said = run(installed, tree, code)
    assert said.split() == [str(tree.parent / "site/edgescope/__init__.py"), "None"]


def test_every_verb_of_the_core_loads_and_each_other_says_what_is_missing(installed, tree):
    code = """
from edgescope import registry
from edgescope.cli.main import main
for name, verb in registry.VERBS.items():
    wing = verb.target.startswith("edgescope.wings.")
    try:
        registry.verb(name)
    except registry.UnavailableError as error:
        assert wing and error.message.code == "E-VERB-1", name
        assert main([name]) == error.exit_code != 0
    else:
        assert not wing, name
for name in ("capacity", "watch", "train_advise"):
    try:
        registry.function(name)
    except registry.UnavailableError:
        continue
    raise AssertionError(name)
"""
    run(installed, tree, code)


def test_this_machine_is_described_without_the_devices_of_wings(installed, tree):
    code = """
from edgescope import registry
from edgescope.devices import manifest
assert list(manifest.present()) == ["cpu"] and manifest.here().id
assert {"cpu", "null"} <= set(registry.installed(registry.DEVICES)) < set(registry.DEVICES)
"""
    run(installed, tree, code)


def test_each_member_that_is_missing_names_itself_and_what_brings_it_back(installed, tree):
    code = """
from edgescope import registry
for family in registry.FAMILIES:
    for name, found in family.items():
        if found.target.startswith("edgescope.wings.") and family is not registry.VERBS:
            try:
                registry.load(family, name, "member")
            except registry.UnavailableError as error:
                assert name in error.what and error.fix == registry.REINSTALL, name
            else:
                raise AssertionError(name)
            assert not found.about.startswith("edgescope.wings.") or registry.facts(name) is registry.about("null")
"""
    run(installed, tree, code)


@pytest.mark.slow
def test_it_measures_stores_and_reports(installed, tree):
    store = str(tree.parent / "store")
    for words in (
        ["bench", "null", "--backend", "null", "--duration", "0.2s"],
        ["list"],
        ["report", "-o", str(tree.parent / "r.html")],
    ):
        answer(sys.executable, "-m", "edgescope", *words, "--store", store, env=installed, cwd=tree.parent)
    assert (tree.parent / "r.html").stat().st_size > 10_000


@pytest.mark.slow
def test_its_unit_tests_pass(installed, tree):
    tests = [f"tests/{name}" for name in UNIT if (tree / "tests" / name).exists()]
    said = answer(
        *(
            sys.executable,
            "-m",
            "pytest",
            "-p",
            "no:xdist",
            "-p",
            "no:cacheprovider",
            "-m",
            "not slow and not gpu",
        ),
        *tests,
        env=installed,
        cwd=tree,
    )
    assert " passed" in said and "skipped" not in said.rpartition("\n")[2]


@pytest.mark.parametrize("wing", WINGS)
@pytest.mark.slow
def test_a_wing_that_is_taken_out_costs_its_own_verbs(wing):
    code = f"""
import sys
sys.modules["edgescope.wings.{wing}"] = None
from edgescope import registry
for name in registry.VERBS:
    try:
        registry.verb(name)
    except registry.UnavailableError:
        print(registry.VERBS[name].target.split(".")[2])
"""
    lost = set(answer(sys.executable, "-c", code).split())
    own = {wing} & {verb.target.split(".")[2] for verb in VERBS.values()}
    assert lost == own | NEEDS.get(wing, set())
