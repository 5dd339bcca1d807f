"""A board behind the agent: the agent itself as a child, or behind a local ssh server."""

import sys
import uuid
from importlib.util import find_spec
from pathlib import Path

import pytest

import small_board


class Behind:
    """What stands for a board: its root, home, trtexec, and the mark that its processes carry."""

    def __init__(self, folder: Path, version: str = "8201", fault: str = "") -> None:
        self.mark = uuid.uuid4().hex
        self.root = small_board.orin(folder / "root")
        self.home = folder / "home"
        self.home.mkdir()
        self.program = small_board.trtexec(folder / "bin", version, fault)

    @property
    def environment(self) -> dict[str, str]:
        return small_board.environment(self.root, self.home, self.mark, self.program)

    @property
    def argv(self) -> list[str]:
        """The command that starts an agent there without ssh."""
        agent = find_spec("edgescope.wings.remote.edgescope_agent")
        assert agent and agent.origin
        words = [f"{name}={value}" for name, value in self.environment.items()]
        return ["env", "-i", *words, sys.executable, "-u", agent.origin]

    def alive(self) -> list[str]:
        return small_board.alive(self.mark)


@pytest.fixture
def behind(tmp_path):
    """Make a board: behind(version="8201", fault="")."""
    made = []

    def make(version="8201", fault=""):
        folder = tmp_path / f"board{len(made)}"
        folder.mkdir()
        made.append(Behind(folder, version, fault))
        return made[-1]

    yield make
    assert not [line for one in made for line in one.alive()]
