"""A server with OpenAI's interface as a model, by its URL: what it says of itself, which is little, and nothing else.

Its weights, their precision and the machine below it are the server's own matter. What it tells (`/models`, and of
llama-server and vLLM `/props` and `/version`) is kept with the result as it was told.
"""

from __future__ import annotations

import json
import os
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

from edgescope.errors import SettingError, UnavailableError, UnsupportedError, UsageError, closest_name
from edgescope.models.base import Purpose, Samples, TensorSpec
from edgescope.records import Json, ModelInfo, digest
from edgescope.wings.generation.engine import BrokenAnswer
from edgescope.wings.generation.http_stream import Address, Connection, Head, request

if TYPE_CHECKING:
    import torch

USUAL_KEY, OWN_KEY = "OPENAI_API_KEY", "EDGESCOPE_API_KEY"
"""The environment variables with the key; edgescope's own comes first. No option names a key: results keep options."""
LONGEST_WAIT_S = 30.0
"""Seconds that a Retry-After is heeded at most."""
TOLD = 300
"""Characters of an error's text that are told."""


class Endpoint:
    """A server as a model: no network, no file, no inputs of its own."""

    def __init__(self, name: str, shapes: Mapping[str, tuple[int, ...]] | None = None) -> None:
        self.address = Address.of(name)
        self.info = ModelInfo(
            name, "unknown", False, "a server, which alone knows its weights", digest([name])[:12]
        )
        self.inputs = (TensorSpec("prompt", (1,), "int64"),)
        self.reference = "none"

    def module(self) -> torch.nn.Module:
        """Raise UnsupportedError: the network is the server's."""
        raise UnsupportedError(
            "E-URL-2",
            "a server's network cannot be had",
            evidence=self.info.name,
            fix="--backend openai --workload generate",
        )

    def onnx(self, folder: Path, opset: int | None = None) -> Path:
        """Raise UnsupportedError: there is no file."""
        self.module()
        return folder

    def samples(self, purpose: Purpose, n: int) -> Samples | None:
        """Return None: prompts are the workload's."""
        return None


class Server:
    """The server at an address: requests over connections that are kept, and what it says of itself.

    The key is read from the environment, and lives in this object alone: no message and no result holds it.
    """

    def __init__(self, address: Address, quiet_s: float) -> None:
        self.address, self.quiet_s = address, quiet_s
        self._idle: list[Connection] = []
        with self._line() as line:
            self.here = line.same_machine
            """Whether it runs on this machine, by its address; one behind a tunnel seems to."""
            self._idle.append(line)
        self._key = self._read_key()
        self.authorized = bool(self._key)

    def _read_key(self) -> str:
        """Return the key, '' for none. The usual one leaves this machine only encrypted; edgescope's own, anyhow."""
        plain = self.address.scheme == "http" and not self.here
        names = (OWN_KEY,) if plain else (OWN_KEY, USUAL_KEY)
        name = next((name for name in names if os.environ.get(name, "").strip()), names[0])
        key = os.environ.get(name, "").strip()
        if not (key.isascii() and key.isprintable()):
            raise SettingError(
                "E-URL-3",
                f"the key in {name} holds characters that no key has",
                effect="Nothing was measured",
                fix="set it again, without line ends",
            )
        return key

    def close(self) -> None:
        """Close every connection."""
        while self._idle:
            self._idle.pop().close()

    def said(self, text: str) -> str:
        """Return a text of the server as one short line, without the key if it repeats it."""
        text = str(self._without_key(text))
        text = " ".join("".join(c if c.isprintable() else " " for c in text).split())
        return text if len(text) <= TOLD else f"{text[:TOLD]}..."

    def _without_key(self, told: Json) -> Json:
        """Return what the server told without the key, if it repeats it: results keep what is told."""
        if not self._key:
            return told
        if isinstance(told, str):
            return told.replace(self._key, "(the key)")
        if isinstance(told, Mapping):
            return {str(self._without_key(k)): self._without_key(v) for k, v in told.items()}
        return [self._without_key(each) for each in told] if isinstance(told, list) else told

    @contextmanager
    def asked(self, body: Mapping[str, Any], path: str) -> Iterator[tuple[Connection, Head]]:
        """Send a request for a streamed answer; hold its connection and its head, whose status is 200.

        BrokenAnswer `refused` of 429 and 503, after the wait that the server asks for; `failed` of any other.
        """
        sent = request(self.address, "POST", self.address.path + path, body, key=self._key, stream=True)
        with self._answered(sent) as (line, head):
            if head.status != 200:
                raise self._refusal(head, line)
            yield line, head

    def told(self, method: str, path: str, body: Mapping[str, Any] | None = None) -> Json:
        """Return the JSON that the server answers; None if it has nothing at this path. BrokenAnswer as `asked`."""
        with self._answered(request(self.address, method, path, body, key=self._key)) as (line, head):
            data = line.whole(head)
        text = data.decode("utf-8", "replace")
        if head.status in (404, 405, 501):
            return None
        if head.status != 200:
            raise BrokenAnswer("failed", self.said(f"{head.status} {head.reason}: {text}"))
        try:
            return self._without_key(json.loads(data))
        except (ValueError, RecursionError):
            raise BrokenAnswer("malformed", f"{path} is no JSON: {self.said(text)}") from None

    @contextmanager
    def _answered(self, sent: bytes) -> Iterator[tuple[Connection, Head]]:
        """Hold a connection on which a request was answered; it is kept if the whole answer was read."""
        with self._line() as line:
            head = line.ask(sent)
            yield line, head
            if line.clean and head.keeps:
                self._idle.append(line)
            else:
                line.close()

    @contextmanager
    def _line(self) -> Iterator[Connection]:
        try:
            line = self._idle.pop()  # the last one that was used
        except IndexError:
            line = Connection(self.address, self.quiet_s)
        try:
            yield line
        except BaseException:
            line.close()
            raise

    def _refusal(self, head: Head, line: Connection) -> BrokenAnswer:
        text = line.whole(head).decode("utf-8", "replace")
        wait = head.fields.get("retry-after", "")
        if head.status not in (429, 503):
            return BrokenAnswer("failed", self.said(f"{head.status} {head.reason}: {text}"))
        time.sleep(min(float(wait), LONGEST_WAIT_S) if wait.isdigit() else 1.0)
        asks = f", Retry-After {wait}" if wait else ""
        return BrokenAnswer("refused", self.said(f"{head.status} {head.reason}{asks}: {text}"))

    # -- what it says of itself

    def model(self, wanted: str | None) -> tuple[str, Mapping[str, Json]]:
        """Return the name of the model to ask for and what the server says of it; {} if it lists no models."""
        listed = self.told("GET", f"{self.address.path}/models")
        rows = listed.get("data") if isinstance(listed, Mapping) else None
        by_name = {str(row["id"]): row for row in rows or () if isinstance(row, Mapping) and "id" in row}
        if wanted is not None:
            if by_name and wanted not in by_name:
                close = closest_name(wanted, by_name)
                raise UsageError(
                    "E-URL-4",
                    f"the server has no model {wanted}",
                    evidence=f"it lists {self.said(', '.join(by_name))}",
                    effect="Nothing was measured",
                    fix=f"--option model={close or next(iter(by_name))}",
                )
            return wanted, by_name.get(wanted, {})
        if len(by_name) != 1:
            raise UsageError(
                "E-URL-4",
                f"the server lists {len(by_name)} models" if by_name else "the server lists no model",
                evidence=self.said(", ".join(by_name)) or f"{self.address.path}/models",
                effect="Nothing was measured",
                fix=f"--option model={next(iter(by_name), 'NAME')}",
            )
        return next(iter(by_name.items()))

    def facts(self) -> dict[str, Json]:
        """Return what llama-server (`/props`) and vLLM (`/version`) say of themselves; {} of others."""
        root, found = self.root, dict[str, Json]()
        for path in ("/version", "/props"):
            try:
                answer = self.told("GET", f"{root}{path}")
            except BrokenAnswer:
                continue
            if isinstance(answer, Mapping):
                found[path[1:]] = {k: v for k, v in answer.items() if _plain(v)}
                settings = answer.get("default_generation_settings")
                if isinstance(settings, Mapping) and isinstance(settings.get("n_ctx"), int):
                    found["context"] = settings["n_ctx"]
        return found

    @property
    def root(self) -> str:
        """Return the path above OpenAI's part of the interface, where servers have their own."""
        return self.address.path.removesuffix("/v1")


def _plain(value: object) -> bool:
    return isinstance(value, int | float | bool) or (isinstance(value, str) and len(value) <= TOLD)


def reached(url: str, quiet_s: float) -> Server:
    """Return the server at a URL; UnavailableError E-URL-5 if none answers there."""
    try:
        return Server(Address.of(url), quiet_s)
    except BrokenAnswer as broken:
        raise unreached(url, broken) from None


def unreached(url: str, broken: BrokenAnswer) -> UnavailableError:
    """Return the error for a server that does not answer."""
    return UnavailableError(
        "E-URL-5",
        f"no server answers at {url}",
        evidence=str(broken),
        effect="Nothing was measured",
        fix="start the server, or give the URL under which it lists /models, as http://127.0.0.1:8080/v1",
    )
