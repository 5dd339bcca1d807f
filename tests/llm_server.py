"""A server with OpenAI's interface that computes nothing: it streams words, well or badly, as its behaviour says.

python tests/llm_server.py [--behaviour NAME ...] [--rate TOKENS_PER_S]

It prints `listening on PORT`. Each behaviour is a model that it lists; `fast` sends all at once. Tokens are words.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import ssl
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

WORDS = ("one", "two", "three", "four", "five")
TEMPLATE = 4
"""Tokens of a chat's template."""
EXTRA = {"ignore_eos", "min_tokens", "return_token_ids", "timings_per_token"}
"""What OpenAI's own servers refuse."""


@dataclass(frozen=True)
class Asked:
    """What a request asks for."""

    name: str
    chat: bool
    prompt_tokens: int
    n: int
    body: dict[str, Any]

    @property
    def usage(self) -> dict[str, Any]:
        """Return the true usage."""
        return self.used(self.n)

    def used(self, n: int) -> dict[str, Any]:
        """Return the usage after n tokens."""
        read = self.prompt_tokens
        return {"prompt_tokens": read, "completion_tokens": n, "total_tokens": read + n}

    def piece(
        self, text: str | None, finish: str | None = None, field: str = "content", **more: Any
    ) -> bytes:
        """Return one event of the stream."""
        choice: dict[str, Any] = {"index": 0, "finish_reason": finish}
        if self.chat:
            choice["delta"] = {} if text is None else {field: text}
        else:
            choice["text"] = text or ""
        return self.event({"choices": [choice], **more})

    def event(self, body: dict[str, Any]) -> bytes:
        """Return an event of any body."""
        kind = "chat.completion.chunk" if self.chat else "text_completion"
        body = {"id": "cmpl-1", "object": kind, "created": 1, "model": self.name, **body}
        return b"data: " + json.dumps(body, separators=(",", ":")).encode() + b"\n\n"

    def words(self, n: int | None = None, step: int = 1, field: str = "content") -> list[bytes]:
        """Return the pieces of an answer, `step` tokens in each."""
        texts = [f"{WORDS[i % len(WORDS)]} " for i in range(self.n if n is None else n)]
        return [self.piece("".join(texts[i : i + step]), field=field) for i in range(0, len(texts), step)]

    def end(self, finish: str = "length", usage: dict[str, Any] | None = None) -> list[bytes]:
        """Return what ends a good answer."""
        wants = (self.body.get("stream_options") or {}).get("include_usage")
        told = [self.event({"choices": [], "usage": usage or self.usage})] if wants else []
        return [self.piece(None, finish), *told, b"data: [DONE]\n\n"]


Step = bytes | float | None
"""Bytes to send, seconds to wait, or None to close the connection there."""


def _each_counted(asked: Asked) -> list[Step]:
    pairs = [(2, "one two "), (1, "three "), (0, "")] * asked.n
    sent, so_far = list[Step](), 0
    for count, text in pairs:
        if so_far + count > asked.n:
            break
        so_far += count
        sent.append(asked.piece(text, usage=asked.used(so_far)))
    rest = asked.n - so_far
    return [*sent, *([asked.piece("four ", usage=asked.usage)] if rest else []), *asked.end()]


BEHAVIOURS: dict[str, Callable[[Asked], list[Step]]] = {
    "fast": lambda asked: [*asked.words(), *asked.end()],
    "two_a_chunk": lambda asked: [*asked.words(step=2), *asked.end()],
    "each_counted": _each_counted,
    "empty_chunks": lambda asked: [
        asked.piece(""),
        *(step for word in asked.words() for step in (asked.piece(""), b": hold on\n\n", word)),
        *asked.end(),
    ],
    "only_empty": lambda asked: [asked.piece(""), asked.piece(None), *asked.end()],
    "too_few_counted": lambda asked: [*asked.words(), *asked.end(usage=asked.used(asked.n // 2))],
    "too_many_counted": lambda asked: [*asked.words(), *asked.end(usage=asked.used(asked.n * 3))],
    "counts_no_number": lambda asked: [
        *asked.words(),
        *asked.end(usage={**asked.usage, "completion_tokens": "8"}),
    ],
    "no_usage": lambda asked: [*asked.words(), asked.piece(None, "length"), b"data: [DONE]\n\n"],
    "stalls": lambda asked: [*asked.words(3), 3600.0],
    "stalls_talking": lambda asked: [*asked.words(3), *([0.02, asked.piece("")] * 1000)],
    "late_done": lambda asked: [*asked.words(), *asked.end(), 3600.0],
    "closes": lambda asked: [*asked.words(3), None],
    "ends_early": lambda asked: [*asked.words(3)],
    "garbled": lambda asked: [*asked.words(2), b'data: {"choices": [{"delta"\n\n'],
    "error_inside": lambda asked: [*asked.words(2), b'data: {"error": {"message": "out of memory"}}\n\n'],
    "endless": lambda asked: [*asked.words(3000), *asked.end()],
    "stops": lambda asked: [*asked.words(asked.n - 2), *asked.end("stop", asked.used(asked.n - 2))],
    "thinks": lambda asked: [
        *asked.words(3, field="reasoning_content"),
        0.02,
        *asked.words(asked.n - 3),
        *asked.end(),
    ],
    "cached": lambda asked: [
        *asked.words(),
        *asked.end(usage={**asked.usage, "prompt_tokens_details": {"cached_tokens": 7}}),
    ],
    "unchunked": lambda asked: [*asked.words(), *asked.end(), None],
    "slow_start": lambda asked: [0.25, *asked.words(), *asked.end()],
    "strict": lambda asked: [*asked.words(), *asked.end()],
    "tells_key": lambda asked: [asked.piece(asked.body["key"]), *asked.words(asked.n - 1), *asked.end()],
    "busy": lambda asked: [],
    "broken": lambda asked: [],
    "not_streamed": lambda asked: [],
    "echoes": lambda asked: [],
}
FIRST_IS_GOOD = (
    *("endless", "stalls", "stalls_talking", "closes", "ends_early", "garbled", "error_inside"),
    *("busy", "broken", "too_few_counted", "too_many_counted"),
)
"""Faults that begin after the first answer, by which a client learns what the server takes."""


class Server:
    """Answers requests of any number of connections."""

    def __init__(self, behaviours: list[str], rate: float | None, first_s: float, *, tokenizes: bool) -> None:
        self.behaviours, self.rate, self.first_s, self.tokenizes = behaviours, rate, first_s, tokenizes
        self.good = {*FIRST_IS_GOOD} & {*behaviours}

    async def connected(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """Answer one connection's requests until it is closed."""
        try:
            while (head := await reader.readuntil(b"\r\n\r\n")) and await self.answer(
                head.decode(), reader, writer
            ):
                pass
        except (asyncio.IncompleteReadError, ConnectionError):
            pass
        finally:
            writer.close()

    async def answer(self, head: str, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> bool:
        """Answer one request; return whether the connection stays open."""
        first, *lines = head.split("\r\n")
        fields = {k.lower(): v.strip() for k, _, v in (line.partition(":") for line in lines)}
        data = await reader.readexactly(int(fields.get("content-length", 0)))
        path, body = first.split(" ")[1], json.loads(data or b"{}")
        key = fields.get("authorization", "")
        if path == "/props" and "tells_key" in self.behaviours:
            return _whole(writer, 200, {"key": key, "build": f"made for {key.split()[-1]}"})
        if path.endswith("/models"):
            owner = {"owned_by": key} if "tells_key" in self.behaviours else {}
            rows = [
                {"id": name, "object": "model", "max_model_len": 4096, **owner} for name in self.behaviours
            ]
            return _whole(writer, 200, {"object": "list", "data": rows})
        if path.endswith("tokenize") and self.tokenizes:
            return _whole(writer, 200, _tokenized(path, body))
        if path.endswith("/completions"):
            return await self.generate(path, {**body, "key": key}, key, writer)
        return _whole(writer, 404, {"error": "no such path"})

    async def generate(self, path: str, body: dict[str, Any], key: str, writer: asyncio.StreamWriter) -> bool:
        """Stream an answer, in the way of the model that was asked for."""
        name = body["model"]
        chat = "/chat/" in path
        prompt = " ".join(_said(m["content"]) for m in body["messages"]) if chat else body["prompt"]
        read = len(prompt) if isinstance(prompt, list) else len(prompt.split()) + TEMPLATE * chat
        asked = Asked(name, chat, read, body.get("max_tokens", body.get("max_completion_tokens", 16)), body)
        good = name in self.good
        self.good.discard(name)
        if name == "strict" and EXTRA & set(body):
            return _whole(writer, 400, {"error": {"message": f"unknown: {sorted(EXTRA & set(body))}"}})
        if name == "busy" and not good:
            return _whole(writer, 429, {"error": "too many requests"}, "Retry-After: 0")
        if name == "broken" and not good:
            return _whole(writer, 500, {"error": "it broke"})
        if name == "echoes":
            return _whole(writer, 401, {"error": f"wrong key: {key}"})
        if name == "not_streamed":
            return _whole(writer, 200, {"choices": [{"message": {"content": "all"}}], "usage": asked.usage})
        steps = BEHAVIOURS["fast" if good else name](asked)
        return await self._stream(writer, steps, chunked=name != "unchunked")

    async def _stream(self, writer: asyncio.StreamWriter, steps: list[Step], *, chunked: bool) -> bool:
        coding = "Transfer-Encoding: chunked" if chunked else "Connection: close"
        writer.write(f"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\n{coding}\r\n\r\n".encode())
        loop = asyncio.get_running_loop()
        start, sent = loop.time() + self.first_s, 0
        for step in steps:
            if step is None:
                return False
            if isinstance(step, float):
                await writer.drain()
                await asyncio.sleep(step)
                continue
            if self.rate and (wait := start + sent / self.rate - loop.time()) > 0:
                await asyncio.sleep(wait)
            writer.write(b"%x\r\n%s\r\n" % (len(step), step) if chunked else step)
            sent += 1
            if sent % 1000 == 0:
                await writer.drain()
        writer.write(b"0\r\n\r\n" if chunked else b"")
        await writer.drain()
        return chunked


def _whole(writer: asyncio.StreamWriter, status: int, body: dict[str, Any], *fields: str) -> bool:
    data = json.dumps(body).encode()
    lines = [
        f"HTTP/1.1 {status} said",
        "Content-Type: application/json",
        f"Content-Length: {len(data)}",
        *fields,
    ]
    writer.write("\r\n".join([*lines, "", ""]).encode() + data)
    return True


def _said(content: Any) -> str:
    return content if isinstance(content, str) else " ".join(part.get("text", "") for part in content)


def _tokenized(path: str, body: dict[str, Any]) -> dict[str, Any]:
    if path.endswith("/detokenize"):
        return {"prompt": " ".join(WORDS[token % len(WORDS)] for token in body["tokens"])}
    tokens = [sum(word.encode()) % 1000 for word in body["prompt"].split()]
    return {"tokens": tokens, "count": len(tokens)}


async def serve(args: argparse.Namespace) -> None:
    """Serve until the process is ended."""
    context = None
    if args.certificate:
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.load_cert_chain(args.certificate)
    made = Server(args.behaviour or ["fast"], args.rate, args.first, tokenizes=args.tokenizes)
    server = await asyncio.start_server(made.connected, "127.0.0.1", args.port, ssl=context, limit=1 << 24)
    print(f"listening on {server.sockets[0].getsockname()[1]}", flush=True)
    async with server:
        await server.serve_forever()


def main() -> None:
    """Read the arguments and serve."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--behaviour", action="append", choices=BEHAVIOURS)
    parser.add_argument("--rate", type=float, help="tokens a second; all at once without it")
    parser.add_argument("--first", type=float, default=0.0, help="seconds until the first token, of a --rate")
    parser.add_argument("--port", type=int, default=0)
    parser.add_argument("--tokenizes", action="store_true", help="it has /tokenize and /detokenize")
    parser.add_argument("--certificate", type=Path, help="a .pem with key and certificate: serve https")
    asyncio.run(serve(parser.parse_args()))


if __name__ == "__main__":
    main()
