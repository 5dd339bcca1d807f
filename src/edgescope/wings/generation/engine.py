"""The seam of generation: a request, what an engine answers to it, and when each of its tokens came.

An engine is a backend as any other: `prepare` makes or finds its file, `load` returns a session. The session of one
that generates text has the methods here besides `effective` and `close`. A program that owns its loop (llama-bench) is
a `SelfDriven` backend and none of this.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol, runtime_checkable

from edgescope.records import Field
from edgescope.records.lazy import NDArray
from edgescope.wings.generation.memory import Held


@dataclass(frozen=True)
class Request:
    """One prompt, and how long its answer shall be."""

    tokens: tuple[int, ...]
    """The prompt as the model's own tokens; () for an engine that takes text alone (`Generates.encode` gives None)."""
    text: str
    """The same prompt as text, as it was before the chat template, if there is one."""
    output_tokens: int
    """The length that is forced: the end-of-text token does not end the answer."""
    images: tuple[bytes, ...] = ()
    """PNG or JPEG files that the prompt shows."""


@dataclass(frozen=True)
class Generated:
    """One answer: its tokens in arrivals, each with the moment at which it could be used."""

    times_ns: Sequence[int]
    """When each arrival came, on the monotonic clock. An arrival is one token or, of some servers, several."""
    counts: Sequence[int]
    """Tokens in each arrival. Of a server that does not say it, 0: only their sum is known then (`output_tokens`)."""
    output_tokens: int
    """Tokens of the answer, as a tokenizer or the server's usage counts them; never the number of arrivals."""
    prompt_tokens: int
    """Tokens of the prompt with its template, counted in the same way."""
    tokens: tuple[int, ...] | None = None
    """The answer's tokens; None if the engine gives text alone."""
    text: str = ""
    cached_tokens: int | None = None
    """Tokens of the prompt that a server says it had computed before; None if it says nothing of it."""
    finish: str = "length"
    """Why the answer ended: `length`, or `stop` at a token that ends it."""
    marks: dict[str, int] = field(default_factory=dict)
    """Further moments, on the same clock: of a vision-language model `image_begin` and `image_end`."""


class BrokenAnswer(Exception):
    """An answer that is no measurement: it stalled, ended early, was refused, or its counts cannot be true.

    `kind` is one word (`stalled`, `closed_early`, `refused`, `wrong_usage`, `empty`), by which such answers are
    counted; the text is the evidence.
    """

    def __init__(self, kind: str, evidence: str) -> None:
        super().__init__(f"{kind}: {evidence}")
        self.kind, self.evidence = kind, evidence


@runtime_checkable
class Generates(Protocol):
    """A session that answers requests; called from as many threads as there are requests in flight."""

    def generate(self, request: Request) -> Generated:
        """Answer greedily; BrokenAnswer if the answer is no measurement."""

    def encode(self, text: str) -> tuple[int, ...] | None:
        """Return the tokens of a text without template or special tokens; None if only the engine knows them."""

    def decode(self, tokens: Sequence[int]) -> str:
        """Return the text of some tokens."""

    @property
    def context(self) -> int | None:
        """The longest prompt and answer together, in tokens; None if the engine does not say it."""


@runtime_checkable
class Scores(Protocol):
    """Optional for such a session: it shows the scores of the next token, by which a quantisation is judged."""

    def scores(self, tokens: Sequence[int]) -> NDArray[Any]:
        """Return the logits after each of these tokens, (tokens, vocabulary) float32."""


@runtime_checkable
class Apart(Protocol):
    """Optional for such a session: another process computes its answers."""

    def unseen(self) -> Mapping[str, Field]:
        """Return the metrics of this process that would be taken for the other's, each Absent with the reason."""


@runtime_checkable
class Holds(Protocol):
    """Optional for such a session: it knows how it holds its model, from which memory and traffic are predicted."""

    def held(self) -> Held:
        """Return it."""
