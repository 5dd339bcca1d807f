"""The form of the Dockerfiles and of the commands in docker/README.md; they have not been built."""

import re
import shlex
from pathlib import Path

import pytest

import small_board
from edgescope.metrics import tomllib
from edgescope.wings.doctor import unlock

ROOT = Path(__file__).parents[3]
FILES = sorted((ROOT / "docker").glob("Dockerfile.*"))
README = (ROOT / "docker/README.md").read_text()
BLOCK = re.compile(r"```sh\n(docker run .*?)\n```", re.DOTALL)


def instructions(path):
    """(word, rest) of each instruction, continued lines joined."""
    text = re.sub(r"^#.*\n", "", path.read_text(), flags=re.MULTILINE).replace("\\\n", " ")
    return [tuple(line.split(None, 1)) for line in text.splitlines() if line.strip()]


def test_there_is_one_for_each_release_and_one_for_any_machine():
    assert {p.suffix for p in FILES} == {".l4t-r32", ".l4t-r35", ".l4t-r36", ".l4t-r38", ".generic"}


@pytest.mark.parametrize("path", FILES, ids=lambda p: p.suffix[1:])
def test_form(path):
    found = instructions(path)
    words = [word for word, _ in found]
    assert words[0] == "FROM"
    assert words.count("FROM") == 1
    base = found[0][1]
    assert re.fullmatch(r"[\w./-]+:[\w.-]+", base)
    assert not base.endswith(":latest")
    assert f"`{base}`" in README
    assert f"`{path.name}`" in README
    assert "ADD" not in words  # it fetches URLs and unpacks archives without a word
    assert not re.search(r"curl|wget|https?://", " ".join(rest for _, rest in found))
    users = [rest for word, rest in found if word == "USER"]
    assert users == ["edgescope"]
    assert words.index("USER") < words.index("ENTRYPOINT")
    assert f"docker/{path.name} -t " in path.read_text()


@pytest.mark.parametrize("path", FILES, ids=lambda p: p.suffix[1:])
def test_what_is_copied_is_there(path):
    for word, rest in instructions(path):
        if word == "COPY":
            for source in rest.split()[:-1]:
                assert (ROOT / source).exists(), source


@pytest.mark.parametrize("path", FILES, ids=lambda p: p.suffix[1:])
def test_what_the_wheel_is_built_from_is_copied(path):
    """hatchling refuses to build without a folder that pyproject.toml names: the pages of `edgescope docs` are one."""
    wheel = tomllib.loads((ROOT / "pyproject.toml").read_text())["tool"]["hatch"]["build"]["targets"]["wheel"]
    needed = {"pyproject.toml", "README.md", "LICENSE", "src", *wheel["force-include"]}
    copied = {source for word, rest in instructions(path) if word == "COPY" for source in rest.split()[:-1]}
    assert needed <= copied or "edgescope_agent.py" in path.read_text()


@pytest.mark.parametrize("path", FILES, ids=lambda p: p.suffix[1:])
def test_edgescope_itself_only_where_python_is_new_enough(path):
    """The table's Python column decides between the agent and the whole."""
    row = next(line for line in README.splitlines() if f"`{path.name}`" in line)
    minor = int(re.search(r"\| 3\.(\d+) \|", row)[1])
    whole = any("pip install" in rest for word, rest in instructions(path) if word == "RUN")
    assert whole == (minor >= 10)
    assert whole != ("edgescope_agent.py" in path.read_text())


def flags(command):
    """The arguments of `docker run` that show the machine: `--x y` and `--x=y` as the doctor prints them."""
    words, found = shlex.split(command)[2:], set()
    while words:
        word = words.pop(0)
        if word in ("-v", "--security-opt", "--runtime", "--gpus"):
            word = f"{word} {words.pop(0)}"
        elif not word.startswith("-"):
            break
        found.add(word)
    return {f for f in found if f not in ("--rm", "-i", "-it") and not f.startswith("-v edgescope-")}


def jetson_host(tmp_path):
    root = small_board.orin(tmp_path)
    for name in ("etc/nvpmodel.conf", "var/lib/nvpmodel/status"):
        (root / name).parent.mkdir(parents=True, exist_ok=True)
        (root / name).write_text("")
    return root


@pytest.mark.parametrize("command", BLOCK.findall(README)[:2])
def test_the_jetson_commands_have_the_flags_that_the_doctor_names(command, tmp_path):
    """What doctor says on a constructed Jetson, and /sys, which it asks for only where it is missing."""
    said = {flag.flag for flag in unlock.flags(jetson_host(tmp_path))}
    assert flags(command) == said | {"-v /sys:/sys:ro"}


def test_each_flag_is_explained():
    commands = BLOCK.findall(README)
    assert len(commands) == 3
    for flag in flags(commands[0]) | flags(commands[1]):
        assert f"| `{flag}` |" in README
