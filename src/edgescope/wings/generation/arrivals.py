"""The pieces of one streamed answer as they come, and what they say together: its tokens, or why it is no measurement.

A piece is what one event brings; it may hold no token, one, or several. How many it held is known where the server
says it behind each piece, or where there are exactly as many pieces as tokens, since a piece with text holds one.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from edgescope.wings.generation.engine import BrokenAnswer, Generated, Request
from edgescope.wings.generation.http_stream import DONE, Connection, Head, events

END_S = 0.2
"""Seconds that a server may take to end its coding behind the end of the answer; its connection is closed then."""


@dataclass
class Arrivals:
    """The pieces of one answer as they come, and in the end what they say together."""

    most: int
    """Pieces after which the answer has no end."""
    times_ns: list[int] = field(default_factory=list)
    texts: list[str] = field(default_factory=list)
    running: list[int] = field(default_factory=list)
    """Tokens so far, behind each piece, where the server says it."""
    ids: list[int] = field(default_factory=list)
    id_counts: list[int] = field(default_factory=list)
    usage: Mapping[str, Any] = field(default_factory=dict)
    timings: Mapping[str, Any] = field(default_factory=dict)
    finish: str = ""
    done: bool = False
    spoken_ns: int | None = None
    """When the first piece came that was not thought aloud, if some were."""
    thought: bool = False

    def read(self, line: Connection, head: Head, said: Callable[[str], str]) -> None:
        """Take every event of a stream; BrokenAnswer if it stalls, ends early, has no end or makes no sense."""
        last, quiet_ns, data = 0, int(line.quiet_s * 1e9), b""
        try:
            for data, now in events(line.pieces(head)):
                if data == DONE:
                    self.done = True
                    line.patience(END_S)
                elif self._take(json.loads(data), now):
                    last = now
                elif last and now - last > quiet_ns and not self.done:
                    raise BrokenAnswer(
                        "stalled", f"no token for {line.quiet_s:g} s, though empty pieces came"
                    )
                last = last or now
                if len(self.times_ns) > self.most:
                    raise BrokenAnswer("endless", f"more than {self.most} pieces")
        except BrokenAnswer as broken:
            if not self.done:  # what comes behind the end of the answer is no part of it
                raise BrokenAnswer(
                    broken.kind, f"{broken.evidence}, after {len(self.times_ns)} pieces"
                ) from None
        except (ValueError, TypeError, AttributeError, KeyError, RecursionError):
            raise BrokenAnswer("malformed", said(data.decode("utf-8", "replace"))) from None
        if not (self.done or self.finish):
            raise BrokenAnswer("closed_early", f"after {len(self.times_ns)} pieces, without an end")
        if self.finish == "error":
            raise BrokenAnswer("failed", said("".join(self.texts)))

    def _take(self, event: Any, now: int) -> bool:
        """Take one event; return whether it brought something of the answer."""
        if usage := event.get("usage"):
            self.usage = usage
        if timings := event.get("timings"):
            self.timings = timings
        if "error" in event:
            self.finish, self.texts = "error", [json.dumps(event["error"])]
            return False
        came = False
        for each in event.get("choices") or ():
            delta = each.get("delta")
            text = self._words(delta, now) if delta is not None else each.get("text")
            ids = each.get("token_ids")
            if text or ids:
                came = True
                self.times_ns.append(now)
                self.texts.append(text or "")
                if ids:
                    self.ids += ids
                    self.id_counts.append(len(ids))
                so_far = self.usage.get("completion_tokens") if usage else self.timings.get("predicted_n")
                if (usage or timings) and so_far is not None:
                    self.running.append(so_far)
            self.finish = each.get("finish_reason") or self.finish
        return came

    def _words(self, delta: Mapping[str, Any], now: int) -> str:
        """Return the text in a chat's piece, spoken, thought aloud, or the call of a tool."""
        if text := delta.get("content"):
            if self.thought and self.spoken_ns is None:
                self.spoken_ns = now
            return str(text)
        if text := delta.get("reasoning_content") or delta.get("reasoning"):
            self.thought = True
            return str(text)
        return json.dumps(calls) if (calls := delta.get("tool_calls")) else ""

    def generated(self, request: Request, count: Callable[[str], int] | None) -> Generated:
        """Return the answer; BrokenAnswer `empty`, `uncounted` or `wrong_usage` if its length is not known."""
        pieces = len(self.times_ns)
        if not pieces:
            raise BrokenAnswer("empty", f"no piece held anything; it ended with {self.finish or '[DONE]'}")
        text = "".join(self.texts)
        written, read = self.usage.get("completion_tokens"), self.usage.get("prompt_tokens")
        if written is None:
            written = count(text) if count else None
        if read is None:
            read = count(request.text) if count else None
        if written is None or read is None:
            raise BrokenAnswer("uncounted", "there is no usage in its stream, and no /tokenize")
        self._check(written, read, request)
        cached = self._cached()
        return Generated(
            times_ns=self.times_ns,
            counts=self._counts(written),
            output_tokens=written,
            prompt_tokens=read,
            tokens=tuple(self.ids) if len(self.ids) == written else None,
            text=text,
            cached_tokens=cached,
            finish="length" if self.finish in ("", "length") else "stop",
            marks={} if self.spoken_ns is None else {"first_spoken": self.spoken_ns},
        )

    def _check(self, written: Any, read: Any, request: Request) -> None:
        """Raise BrokenAnswer `wrong_usage` if these counts cannot be true."""
        pieces = len(self.times_ns)
        for name, tokens in (("completion_tokens", written), ("prompt_tokens", read)):
            if type(tokens) is not int or tokens < 1:
                raise BrokenAnswer("wrong_usage", f"{name} is {tokens!r}")
        if written < pieces:
            raise BrokenAnswer("wrong_usage", f"it counts {written} tokens, and {pieces} pieces came")
        if written > request.output_tokens and self.finish == "length":
            asked = request.output_tokens
            raise BrokenAnswer("wrong_usage", f"it counts {written} tokens and was stopped at {asked}")
        if self.ids and len(self.ids) != written:
            raise BrokenAnswer("wrong_usage", f"it counts {written} tokens and showed {len(self.ids)}")

    def _counts(self, written: int) -> Sequence[int]:
        """Return the tokens of each piece: as said, or one each where there are as many pieces; else 0."""
        pieces = len(self.times_ns)
        if len(self.id_counts) == pieces and sum(self.id_counts) == written:
            return self.id_counts
        if len(self.running) == pieces and self.running[-1] == written:
            steps = [b - a for a, b in zip([0, *self.running], self.running, strict=False)]
            if min(steps) >= 0:
                return steps
        return [1 if pieces == written else 0] * pieces

    def _cached(self) -> int | None:
        details = self.usage.get("prompt_tokens_details")
        said = details.get("cached_tokens") if isinstance(details, Mapping) else self.timings.get("cache_n")
        return said if type(said) is int else None
