"""How much memory a language model takes, and the longest context that fits.

    predicted = weights as the engine holds them + cache of every answer in flight + scores of a prompt + the runtime

The cache grows with the tokens of prompt and answer. The runtime (interpreter, libraries, an engine's workspace) is
what is left of a process that was measured with a model so small that nothing else counts.
"""

from __future__ import annotations

from dataclasses import dataclass

from edgescope.wings.generation.architecture import Architecture


@dataclass(frozen=True)
class Held:
    """How an engine holds a model."""

    shape: Architecture
    weight_bytes: float
    """Bytes of all weights in the engine's own form."""
    kv_bytes: float
    """Bytes of one number in the cache."""
    runtime_bytes: float
    """Bytes of the process without weights and cache."""
    activation_bytes: float = 4.0
    """Bytes of one number between the layers."""

    def predicted(self, prompt: int, output: int, together: int = 1) -> float:
        """Return the bytes of the process with so many answers in flight, each of these lengths."""
        cache = together * self.shape.kv_values(prompt + output) * self.kv_bytes
        return self.weight_bytes + cache + together * self.between(prompt) + self.runtime_bytes

    def between(self, tokens: int) -> float:
        """Return the bytes of what lies between layers at its widest: in a feed-forward layer of a whole prompt."""
        a = self.shape
        return tokens * (3 * a.hidden + 2 * a.width) * self.activation_bytes

    def longest(self, free_bytes: float, together: int = 1) -> int:
        """Return the tokens of prompt and answer together that fit into so many bytes, at most the model's context.

        0 if the weights and the runtime alone do not fit. A prompt may take all of them, so its width counts.
        """
        left = free_bytes - self.weight_bytes - self.runtime_bytes
        each = together * (self.shape.kv_values() * self.kv_bytes + self.between(1))
        return max(0, min(self.shape.context, int(left // each)))
