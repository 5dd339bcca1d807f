"""What runs on a board is for Pythons too old for edgescope: linted for 3.6, and the agent run under every old one."""

import os
import shutil
import subprocess
from pathlib import Path

import pytest

from edgescope.wings.remote import edgescope_agent

NAMES = ("edgescope_agent", "torch_program", "torch_training")
SOURCES = {
    name: Path(edgescope_agent.__file__).with_name(f"{name}.py").read_text(encoding="utf-8") for name in NAMES
}
SOURCE = SOURCES["edgescope_agent"]
OLD = ("python3.6", "python3.7", "python3.8", "python3.9")


def usable(name):
    """Path of that Python; None where it is not here, or is a shim that leads nowhere."""
    home = os.path.expanduser("~/.pyenv/versions")
    built = [os.path.join(home, v, "bin", name) for v in (os.listdir(home) if os.path.isdir(home) else [])]
    for path in [shutil.which(name), *built]:
        if path and os.access(path, os.X_OK):
            done = subprocess.run(
                [path, "-c", "import sys; print(sys.version_info[:2])"], capture_output=True, check=False
            )
            if done.returncode == 0:
                return path
    return None


@pytest.mark.parametrize("name", SOURCES)
def test_it_needs_nothing_newer_than_3_6(name):
    import vermin

    found = vermin.detect(SOURCES[name])
    assert found[1] is not None and found[1] <= (3, 6), found


def test_the_linter_would_notice_a_newer_feature():
    import vermin

    assert vermin.detect(SOURCE + "\ntime.monotonic_ns()\n")[1] == (3, 7)
    assert vermin.detect(SOURCE + "\nif (n := 10) > 5: pass\n")[1] == (3, 8)


MORE = {"edgescope_agent": set(), "torch_program": {"torch"}, "torch_training": {"torch_program"}}


@pytest.mark.parametrize(("name", "more"), MORE.items())
def test_it_imports_the_standard_library_only(name, more):
    import ast
    import sys

    tree = ast.parse(SOURCES[name])
    names = {a.name.split(".")[0] for n in ast.walk(tree) if isinstance(n, ast.Import) for a in n.names}
    names |= {n.module.split(".")[0] for n in ast.walk(tree) if isinstance(n, ast.ImportFrom)}
    assert names <= set(sys.stdlib_module_names) | more


def test_the_agent_stays_small():
    assert len(SOURCE.splitlines()) <= 1600


@pytest.mark.process
@pytest.mark.parametrize("name", OLD)
def test_it_works_under_an_old_python(talk, name):
    python = usable(name)
    if python is None:
        pytest.skip(f"no {name} on PATH or in ~/.pyenv/versions")
    one = talk(python=python)
    assert one.ok("hello")["python"].startswith(name.removeprefix("python") + ".")
    assert one.ok("facts")["files"]["proc/device-tree/model"]
    assert one.ok("sample_start", hz=20)["channels"]
    asked = {"argv": [python, "-c", "print(6 * 7)"], "files": {}, "outputs": []}
    (ended,) = one.ok("run", programs=[asked], limit_s=20)["programs"]
    assert (ended["code"], ended["stopped"]) == (0, "")
    assert one.ok("sample_stop")["ticks"] >= 1
    assert [line for e in one.events if e["event"] == "lines" for line in e["lines"]] == ["42"]
    assert one.error("no such verb") == "unknown_verb"
    one.process.stdin.close()
    assert one.process.wait(5) == 0
