"""An agent as a process of its own, spoken to line by line."""

import contextlib
import json
import subprocess
import sys
import time
import uuid
from pathlib import Path

import pytest

import small_board
from edgescope.wings.remote import edgescope_agent

AGENT = Path(edgescope_agent.__file__)


class Talk:
    """One agent: send requests, read answers; events are kept aside."""

    def __init__(self, home: Path, root: Path, python: str = sys.executable, **variables: str) -> None:
        self.mark, self.events = uuid.uuid4().hex, []
        env = small_board.environment(root, home, self.mark) | variables
        self.process = subprocess.Popen(
            [python, "-u", str(AGENT)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            env=env,
        )

    def say(self, line: bytes) -> None:
        self.process.stdin.write(line)
        self.process.stdin.flush()

    def hear(self) -> dict:
        while True:
            line = self.process.stdout.readline()
            assert line, self.process.stderr.read()
            message = json.loads(line)
            if "event" not in message:
                return message
            self.events.append(message)

    def ask(self, verb: str, **fields) -> dict:
        self.say(json.dumps({"id": 1, "verb": verb, **fields}).encode() + b"\n")
        return self.hear()

    def ok(self, verb: str, **fields) -> dict:
        answer = self.ask(verb, **fields)
        assert "ok" in answer, answer
        return answer["ok"]

    def error(self, verb: str, **fields) -> str:
        return self.ask(verb, **fields)["error"]["code"]

    def gone(self, seconds: float = 5.0) -> bool:
        """Whether nothing that was started for this agent runs any more, within some seconds."""
        until = time.monotonic() + seconds
        while small_board.alive(self.mark) and time.monotonic() < until:
            time.sleep(0.02)
        return not small_board.alive(self.mark)

    def end(self) -> None:
        self.process.kill()
        self.process.wait()
        for pipe in (self.process.stdin, self.process.stdout, self.process.stderr):
            with contextlib.suppress(BrokenPipeError):
                pipe.close()


@pytest.fixture
def talk(tmp_path):
    """Make an agent on an Orin Nano: talk(python=...)."""
    made = []

    def make(root=None, **keys):
        where = root or small_board.orin(tmp_path / f"root{len(made)}")
        made.append(Talk(tmp_path / "home", where, **keys))
        return made[-1]

    yield make
    for one in made:
        one.end()
