"""How much memory a language model takes, and the longest context that fits.

    predicted = runtime + the larger of   what loading needs
                                          weights in memory + cache of every answer in flight + a prompt's activations

The cache grows with the tokens of prompt and answer. The runtime is the process as it was before it loaded the model,
and what the engine adds for a model so small that nothing else counts. How often an engine holds the weights while it
loads and afterwards is measured (benchmarks/generation_memory.py).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import psutil

from edgescope.devices.cpu.limits import Memory
from edgescope.records import Absent, Field, Measured
from edgescope.wings.generation.architecture import Architecture


@dataclass(frozen=True)
class Held:
    """How an engine holds a model."""

    shape: Architecture
    read_bytes: float
    """Bytes of weights that a decoded token needs, as the engine keeps them: all, without an embedding that is only
    looked up."""
    weight_bytes: float
    """Bytes of memory that the loaded weights take, copies included."""
    kv_bytes: float
    """Bytes of one number in the cache."""
    loading_bytes: float = 0.0
    """Most bytes that loading takes."""
    engine_bytes: float = 0.0
    """Bytes that the engine adds to a process for a model of no size."""
    activation_bytes: float = 4.0
    """Bytes of one number between the layers."""
    arithmetic: str = ""
    """Precision of the products; '' if the engine does not tell it."""
    on_host: bool = True
    """Whether all of it lies in the memory of the process."""

    def predicted(self, before: float, prompt: int, output: int, together: int = 1) -> float:
        """Return the most bytes of a process that held `before`, with so many answers of these lengths at once."""
        cache = together * self.shape.kv_values(prompt + output) * self.kv_bytes
        loaded = self.weight_bytes + cache + together * self.between(prompt)
        return before + self.engine_bytes + max(self.loading_bytes, loaded)

    def between(self, tokens: int) -> float:
        """Return the bytes of what lies between layers at its widest: in a feed-forward layer of a whole prompt."""
        a = self.shape
        return tokens * (3 * a.hidden + 2 * a.width) * self.activation_bytes

    def longest(self, free_bytes: float, together: int = 1) -> int:
        """Return the tokens of prompt and answer together that fit into so many bytes, at most the model's context.

        0 if the model alone does not fit, or cannot be loaded. A prompt may take all of them, so its width counts.
        """
        left = free_bytes - self.engine_bytes - self.weight_bytes
        if free_bytes < self.engine_bytes + self.loading_bytes or left <= 0:
            return 0
        each = together * (self.shape.kv_values() * self.kv_bytes + self.between(1))
        return min(self.shape.context, int(left // each))


@dataclass(frozen=True)
class Room:
    """The memory before a model is loaded, in bytes."""

    process: float
    """Held by this process."""
    free: float
    """Free for it, within its control group's limit."""

    @classmethod
    def now(cls) -> Room:
        """Look."""
        with Memory() as memory:
            return cls(resident(), float(memory.available()))


def resident() -> float:
    """Return the bytes that this process holds now."""
    return float(psutil.Process().memory_info().rss)


UNTOLD = Absent("the engine does not say how it holds the model")
ELSEWHERE = Absent("the model lies in the memory of the device, which no process sees its share of")
NAMES = ("memory_predicted_bytes", "context_fits_tokens")


def figures(held: Held | None, room: Room, prompt: int, output: int, together: int) -> Mapping[str, Field]:
    """Return the predicted peak and the longest context that fits, by name; absent with the reason."""
    if held is None or not held.on_host:
        return dict.fromkeys(NAMES, UNTOLD if held is None else ELSEWHERE)
    most = held.longest(room.free, together)
    return {
        NAMES[0]: Measured(held.predicted(room.process, prompt, output, together), "bytes"),
        NAMES[1]: Measured(float(most), "tokens"),
    }
