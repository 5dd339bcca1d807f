"""Lines of JSON between a leader and a worker, over pipes that nothing else writes to.

Engines print what they like to stdout. A worker therefore keeps the pipe it was given for itself, and whatever is
printed from then on goes to stderr.
"""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Iterator
from typing import IO

from edgescope.records import Json


class Talk:
    """A worker's end: hears orders, says what happened."""

    def __init__(self, orders: IO[bytes], words: IO[bytes]) -> None:
        self.orders, self.words = orders, words

    @classmethod
    def own(cls) -> Talk:
        """Take this process's stdin and stdout for the leader alone; what is printed later goes to stderr."""
        orders, words = os.fdopen(os.dup(0), "rb"), os.fdopen(os.dup(1), "wb")
        nothing = os.open(os.devnull, os.O_RDONLY)
        os.dup2(nothing, 0)
        os.close(nothing)
        sys.stdout.flush()
        os.dup2(2, 1)
        return cls(orders, words)

    def say(self, said: str, **what: Json) -> None:
        """Tell the leader."""
        self.words.write(json.dumps({"said": said, **what}).encode() + b"\n")
        self.words.flush()

    def hear(self) -> dict[str, Json]:
        """Return the next order; EOFError when the leader has gone."""
        line = self.orders.readline()
        if not line:
            raise EOFError("the leader has gone")
        order: dict[str, Json] = json.loads(line)
        return order

    def heard(self) -> Iterator[dict[str, Json]]:
        """Yield orders until the leader has gone."""
        while line := self.orders.readline():
            yield json.loads(line)
