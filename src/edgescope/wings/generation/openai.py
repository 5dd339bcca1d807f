"""Any server with OpenAI's interface as an engine: streamed answers, each token with the moment its bytes came.

The length of an answer is forced by fields that not every server knows (`ignore_eos`, `min_tokens`): one that refuses
them is asked with fewer, and what it ignored shows in the lengths that came. Tokens are counted by the server's usage,
else by its own tokenizer; never by pieces, of which one may hold several tokens or none.
"""

from __future__ import annotations

import base64
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, ClassVar

from edgescope.backends.base import Artifact, Spec, checked, choice
from edgescope.errors import UnsupportedError, UsageError
from edgescope.models.base import Batch, Model
from edgescope.records import Absent, Effective, Field, Json
from edgescope.records.lazy import NDArray
from edgescope.wings.generation.about import SERVER, AboutOpenAi
from edgescope.wings.generation.arrivals import Arrivals
from edgescope.wings.generation.endpoint import Server, reached, unreached
from edgescope.wings.generation.engine import BrokenAnswer, Generated, Request

QUIET_S = 120.0
"""Seconds without a token until an answer is given up: a long prompt takes a small board this long."""
PROBE = Request((), "Write the numbers from one to one hundred in words.", 8)
"""The first request to a server: it shows which fields it takes, and whether it counts."""
MOST = 4
"""An answer of so many times the tokens that were asked for, and some, has no end."""
PATHS = {"chat": "/chat/completions", "completions": "/completions"}


class OpenAi(AboutOpenAi):
    """The backend: finds the server and its model."""

    OPTIONS: ClassVar[Mapping[str, str]] = {
        "model": "the server's name of the model (the only one that it lists)",
        "api": "chat or completions: with or without the server's chat template (chat)",
        "system": "a system prompt for every chat (none)",
        "reference": "what it serves, as llm:smollm2 or FILE.gguf: its answers are compared with that in fp32 (none)",
        "quiet": f"seconds without a token until an answer is given up ({QUIET_S:g})",
    }

    def prepare(self, model: Model, spec: Spec, folder: Path) -> Artifact:
        """Ask the server for its model; UsageError if it does not have it, UnavailableError if none answers."""
        checked("openai", spec, self.OPTIONS)
        if "reference" in spec.options and choice(spec, "api", tuple(PATHS)) == "chat":
            raise UsageError(
                "E-URL-9",
                "a chat's template stands between the prompt and the answer",
                effect="Its answers cannot be compared with those of the reference",
                fix="--option api=completions",
            )
        server = _server(model.info.name, spec)
        try:
            if spec.device != SERVER.name and not server.here:
                raise UsageError(
                    "E-URL-8",
                    f"what a server on another machine computes on is not known, nor that it is {spec.device}",
                    evidence=f"{server.address.authority} is not this machine",
                    effect="This machine's sensors would be taken for the server's",
                    fix="leave --device out",
                )
            name, said = server.model(_text(spec, "model"))
            notes: dict[str, Json] = {"name": name, "model": said, "here": server.here, **server.facts()}
        except BrokenAnswer as broken:
            raise unreached(model.info.name, broken) from None
        finally:
            server.close()
        return Artifact(model, spec, None, model.info.digest, None, {"server": notes})

    def load(self, artifact: Artifact) -> OpenAiSession:
        """Return a session after a first short answer; UnsupportedError if the server does not stream or count."""
        spec = artifact.spec
        about = artifact.notes["server"]
        assert isinstance(about, Mapping)
        server = _server(artifact.model.info.name, spec)
        try:
            return OpenAiSession(server, spec, about)
        except BaseException:
            server.close()
            raise


def _server(url: str, spec: Spec) -> Server:
    quiet = spec.options.get("quiet", QUIET_S)
    try:
        quiet_s = float(quiet)
    except ValueError:
        quiet_s = 0.0
    if not 0 < quiet_s <= 3600:
        raise UsageError("E-OPT-2", f"quiet must be seconds up to 3600, not {quiet!r}")
    return reached(url, quiet_s)


def _text(spec: Spec, name: str) -> str | None:
    value = spec.options.get(name)
    return None if value is None else str(value)


Fields = Callable[[int], dict[str, Any]]
"""The fields of a request for so many tokens."""
LADDER: Sequence[Fields] = (
    lambda n: {
        "max_tokens": n,
        "min_tokens": n,
        "ignore_eos": True,
        "return_token_ids": True,
        "timings_per_token": True,
        "stream_options": {"include_usage": True, "continuous_usage_stats": True},
        "temperature": 0,
    },
    lambda n: {"max_tokens": n, "stream_options": {"include_usage": True}, "temperature": 0},
    lambda n: {"max_completion_tokens": n, "stream_options": {"include_usage": True}},
    lambda n: {"max_tokens": n, "temperature": 0},
)
"""What a server is asked with, until one of them is not refused: vLLM's and llama-server's fields, OpenAI's, fewer."""


class OpenAiSession:
    """One server, ready to answer; called from any number of threads."""

    def __init__(self, server: Server, spec: Spec, about: Mapping[str, Json]) -> None:
        self._server, self._spec, self._about = server, spec, about
        self._name, self._api = str(about["name"]), choice(spec, "api", tuple(PATHS))
        self._system, self._rung = _text(spec, "system"), 0
        self._tokenizes = self._asked_tokens("a b") is not None
        self._first = self._probe()

    # -- Session

    def __call__(self, batch: Batch) -> Sequence[NDArray[Any]]:
        """Raise UsageError: a server answers prompts."""
        raise UsageError("E-URL-6", "a server answers prompts, not tensors", fix="--workload generate")

    def effective(self) -> Effective:
        """Return what is known: the server says neither its device nor its precision."""
        got, asked = self._first, PROBE.output_tokens
        ignored = (
            ""
            if got.output_tokens == asked
            else f", lengths are not forced ({got.output_tokens} for {asked})"
        )
        where = "this machine" if self._server.here else f"{self._server.address.authority}, another machine"
        counts = "by piece" if all(got.counts) else "in sum only"
        evidence = (
            f"{self._name} on {where}; tokens counted {counts}; "
            f"fields of step {self._rung + 1} of {len(LADDER)} taken{ignored}"
        )
        unwatched = f"{where}, computed: none of its sensors was read" if self.elsewhere else ""
        return Effective(self._spec.device, "unknown", None, evidence, unwatched)

    def close(self) -> None:
        """Close the connections."""
        self._server.close()

    # -- Generates

    def generate(self, request: Request) -> Generated:
        """Answer one prompt; BrokenAnswer if the answer is no measurement."""
        body = self._body(request)
        taken = Arrivals(most=MOST * request.output_tokens + 64)
        with self._server.asked(body, PATHS[self._api]) as (line, head):
            if "json" in head.fields.get("content-type", ""):
                raise BrokenAnswer(
                    "not_streamed", self._server.said(line.whole(head).decode("utf-8", "replace"))
                )
            taken.read(line, head, self._server.said)
        return taken.generated(request, self._count if self._tokenizes else None)

    def encode(self, text: str) -> tuple[int, ...] | None:
        """Return the tokens of a text by the server's own tokenizer; None if it does not show it."""
        return self._asked_tokens(text) if self._tokenizes else None

    def decode(self, tokens: Sequence[int]) -> str:
        """Return the text of some tokens; '' if the server does not show its tokenizer."""
        answer = self._server.told(
            "POST", f"{self._server.root}/detokenize", {"model": self._name, "tokens": list(tokens)}
        )
        found = answer.get("prompt", answer.get("content")) if isinstance(answer, Mapping) else None
        return found if isinstance(found, str) else ""

    @property
    def context(self) -> int | None:
        """The longest prompt and answer, as vLLM and llama-server say it; None of others."""
        said = self._about.get("model")
        found = said.get("max_model_len") if isinstance(said, Mapping) else None
        found = found if found is not None else self._about.get("context")
        return found if isinstance(found, int) else None

    @property
    def elsewhere(self) -> str:
        """The machine that computes, if it is not this one; '' if it is."""
        return "" if self._server.here else self._server.address.authority

    def unseen(self) -> Mapping[str, Field]:
        """Return what is known of this process and not of the server."""
        return {"peak_rss_bytes": Absent("the server computes in a process of its own")}

    # -- how it asks

    def _probe(self) -> Generated:
        """Return a short answer, with the most fields that the server takes."""
        for self._rung in range(len(LADDER)):
            try:
                return self.generate(PROBE)
            except BrokenAnswer as broken:
                refused = broken.kind == "failed" and broken.evidence.startswith(("400", "422"))
                if not refused or self._rung + 1 == len(LADDER):
                    raise _unusable(broken) from None
        raise AssertionError("the ladder has steps")

    def _body(self, request: Request) -> dict[str, Any]:
        fields = {"model": self._name, "stream": True, **LADDER[self._rung](request.output_tokens)}
        if self._api == "completions":
            return fields | {
                "prompt": list(request.tokens) if request.tokens and self._tokenizes else request.text
            }
        system = [{"role": "system", "content": self._system}] if self._system else []
        return fields | {"messages": [*system, {"role": "user", "content": _content(request)}]}

    def _asked_tokens(self, text: str) -> tuple[int, ...] | None:
        asked = {"model": self._name, "prompt": text, "content": text}
        plain = {"add_special_tokens": False, "add_special": False}
        try:
            answer = self._server.told("POST", f"{self._server.root}/tokenize", asked | plain)
        except BrokenAnswer:
            return None
        found = answer.get("tokens") if isinstance(answer, Mapping) else None
        if not isinstance(found, list) or not all(type(token) is int for token in found):
            return None
        return tuple(found)

    def _count(self, text: str) -> int:
        return len(self._asked_tokens(text) or ())


UNUSABLE = {
    "not_streamed": "the server does not stream its answers",
    "uncounted": "the server does not say how many tokens it wrote",
}


def _unusable(broken: BrokenAnswer) -> UnsupportedError:
    return UnsupportedError(
        "E-URL-7",
        UNUSABLE.get(broken.kind, "the server's first answer is no measurement"),
        evidence=str(broken),
        effect="Nothing was measured: there would be no time of a token, or no rate",
        fix="--option api=completions, or a server that streams and takes stream_options.include_usage",
    )


def _content(request: Request) -> str | list[dict[str, Any]]:
    if not request.images:
        return request.text
    urls = (f"data:{_type(image)};base64,{base64.b64encode(image).decode()}" for image in request.images)
    return [
        *({"type": "image_url", "image_url": {"url": url}} for url in urls),
        {"type": "text", "text": request.text},
    ]


def _type(image: bytes) -> str:
    return "image/png" if image.startswith(b"\x89PNG") else "image/jpeg"
