"""How the Makefile's environment is made: pip's settings reach uv, and pip does what uv cannot."""

import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace

import pytest

sys.path.insert(0, str(Path(__file__).parents[2] / "tools"))
import environment

LISTED = r"""
global.constraint='pins.txt'
global.extra-index-url='https://one.example/simple\nhttps://two.example/simple'
global.index-url='https://global.example/simple'
install.index-url='https://install.example/simple'
wheel.find-links='/of/another/command'
global.no-color='true'
"""
INSTALLS = [["-e", ".[dev]", "-c", "constraints.txt"], ["--no-deps", "-r", "samples.txt"]]


@pytest.fixture
def commands(monkeypatch, tmp_path):
    """What would be run, and with which environment; what is put in `fails` ends with an error."""
    seen = SimpleNamespace(ran=[], environments=[], fails=set())

    def run(command, *, env=None, check=False, **_):
        seen.ran.append(" ".join(Path(word).name if "/bin/" in word else word for word in command))
        seen.environments.append(env or {})
        failed = any(word in seen.ran[-1] for word in seen.fails)
        if failed and check:
            raise subprocess.CalledProcessError(1, command)
        if "--target" in command and not failed:
            uv = Path(command[command.index("--target") + 1]) / "bin/uv"
            uv.parent.mkdir(parents=True)
            uv.touch()
        return SimpleNamespace(returncode=int(failed), stdout=LISTED.encode() if "config" in command else b"")

    monkeypatch.setattr(environment.subprocess, "run", run)
    monkeypatch.setattr(environment.shutil, "which", lambda _: None)
    monkeypatch.chdir(tmp_path)
    for name in [*environment.os.environ]:
        if name.startswith(("PIP_", "UV_")):
            monkeypatch.delenv(name)
    return seen


def test_what_pip_is_configured_with_reaches_uv(commands, monkeypatch):
    monkeypatch.setenv("PIP_FIND_LINKS", "/one /two")
    monkeypatch.setenv("PIP_CONSTRAINT", "other.txt")
    assert environment.settings() == {
        "UV_DEFAULT_INDEX": "https://install.example/simple",
        "UV_INDEX": "https://one.example/simple https://two.example/simple",
        "UV_FIND_LINKS": "/one,/two",
        "UV_CONSTRAINT": "other.txt",
    }


def test_what_is_said_to_uv_itself_goes_before_what_is_said_to_pip(commands, monkeypatch):
    monkeypatch.setenv("UV_DEFAULT_INDEX", "https://own.example/simple")
    environment.main(Path("env"), INSTALLS)
    assert commands.environments[-1]["UV_DEFAULT_INDEX"] == "https://own.example/simple"
    assert commands.environments[-1]["UV_CONSTRAINT"] == "pins.txt"


def test_pip_fetches_uv_and_uv_installs(commands):
    environment.main(Path("env"), INSTALLS)
    installed = [line for line in commands.ran if " install " in line]
    assert [line.split()[0] for line in installed] == [Path(sys.executable).name, "uv", "uv"]
    commands.ran.clear()
    environment.main(Path("env"), INSTALLS)
    assert not any("--target" in line for line in commands.ran)  # it is there


@pytest.mark.parametrize("fails", ["--target", "uv venv", "uv pip"])
def test_pip_installs_the_same_where_uv_cannot(commands, fails):
    commands.fails = {fails}
    environment.main(Path("env"), INSTALLS)
    last = commands.ran[-3:]
    assert (
        " -m venv " in last[0] and "-e .[dev] -c constraints.txt" in last[1] and "-r samples.txt" in last[2]
    )
    assert all("-m" in line.split() for line in last)


@pytest.mark.parametrize("module", ["venv", "ensurepip"])
def test_without_the_module_it_is_said_what_to_install(commands, monkeypatch, module):
    commands.fails = {"--target"}
    monkeypatch.setattr(environment, "find_spec", lambda name: None if name == module else name)
    with pytest.raises(SystemExit, match=rf"{module}\. .*apt-get install"):
        environment.main(Path("env"), INSTALLS)


def test_where_neither_can_the_end_is_one_sentence(commands):
    commands.fails = {"pip install"}
    with pytest.raises(SystemExit, match="pip could not install"):
        environment.main(Path("env"), INSTALLS)
