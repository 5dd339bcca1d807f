"""Byte-level BPE, as GGUF files state it: text to tokens and back, and a made-up vocabulary of any size.

A text is cut into pieces (a word with its space, digits, punctuation), each piece becomes bytes, and pairs of symbols
are merged in the order of the file's table. `re` has no classes of Unicode's properties: a letter is what str.isalpha
says, so a number that is no digit (a fraction, a superscript) may be cut otherwise than by the model's own tokenizer.
"""

from __future__ import annotations

import itertools
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property, lru_cache
from typing import Any

from edgescope.errors import UnsupportedError

LETTER, DIGIT, OTHER = r"[^\W\d_]", r"\d", r"(?:[^\s\w]|_)"
_SHORT = r"'s|'t|'re|'ve|'m|'ll|'d"
_GPT2 = rf"{_SHORT}| ?{LETTER}+| ?{{digits}}| ?{OTHER}+|\s+(?!\S)|\s+"
_LLAMA3 = (
    rf"(?i:{_SHORT})|(?:(?![\r\n]){OTHER}|[^\S\r\n])?{LETTER}+|{{digits}}"
    rf"| ?{OTHER}+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+"
)
PIECES = {
    "default": _GPT2.format(digits=rf"{DIGIT}+"),
    "gpt-2": _GPT2.format(digits=rf"{DIGIT}+"),
    "smollm": _GPT2.format(digits=DIGIT).replace(rf" ?{DIGIT}|", rf"{DIGIT}|"),
    "llama-bpe": _LLAMA3.format(digits=rf"{DIGIT}{{1,3}}"),
    "qwen2": _LLAMA3.format(digits=DIGIT),
}
"""How a text is cut, by GGUF's name (`tokenizer.ggml.pre`)."""
CONTROL = 3
"""The kind of a token that stands for no text."""


@lru_cache(maxsize=1)
def symbols() -> tuple[str, ...]:
    """Return the printable character that stands for each byte."""
    plain = [*range(33, 127), *range(161, 173), *range(174, 256)]
    others = itertools.count(256)
    return tuple(chr(b) if b in plain else chr(next(others)) for b in range(256))


@dataclass(frozen=True)
class Tokenizer:
    """The tokenizer of one file."""

    tokens: Sequence[str]
    merges: Sequence[str]
    kinds: Sequence[int]
    pre: str

    @cached_property
    def _ids(self) -> Mapping[str, int]:
        return {token: number for number, token in enumerate(self.tokens)}

    @cached_property
    def _ranks(self) -> Mapping[tuple[str, str], int]:
        pairs = (merge.partition(" ")[::2] for merge in self.merges)
        return {(left, right): rank for rank, (left, right) in enumerate(pairs)}

    @cached_property
    def _cut(self) -> re.Pattern[str]:
        return re.compile(PIECES[self.pre])

    def encode(self, text: str) -> tuple[int, ...]:
        """Return the tokens of a text; the names of control tokens in it are text as any other."""
        byte = symbols()
        pieces = ("".join(byte[b] for b in piece.encode()) for piece in self._cut.findall(text))
        return tuple(self._ids[part] for piece in pieces for part in self._merged(piece))

    def _merged(self, piece: str) -> list[str]:
        parts, ranks = list(piece), self._ranks
        while len(parts) > 1:
            best = min(itertools.pairwise(parts), key=lambda pair: ranks.get(pair, len(ranks)))
            if best not in ranks:
                break
            parts = list(_joined(parts, best))
        return parts

    def decode(self, tokens: Sequence[int]) -> str:
        """Return the text of some tokens; control tokens have none."""
        byte = {symbol: number for number, symbol in enumerate(symbols())}
        said = (self.tokens[t] for t in tokens if t < len(self.tokens) and self.kinds[t] != CONTROL)
        return bytes(byte[s] for token in said for s in token if s in byte).decode(errors="replace")


def _joined(parts: Sequence[str], pair: tuple[str, str]) -> Iterator[str]:
    at = 0
    while at < len(parts):
        if tuple(parts[at : at + 2]) == pair:
            yield parts[at] + parts[at + 1]
            at += 2
        else:
            yield parts[at]
            at += 1


def read(facts: Mapping[str, Any], name: str) -> Tokenizer:
    """Return the tokenizer that a GGUF file states; UnsupportedError for another kind than byte-level BPE."""
    kind, pre = facts.get("tokenizer.ggml.model"), facts.get("tokenizer.ggml.pre", "default")
    if kind != "gpt2" or pre not in PIECES:
        raise UnsupportedError(
            "E-LM-20",
            f"the tokenizer of {name} is not known here",
            evidence=f"{kind} with the cutting rule {pre}; known: gpt2 with {', '.join(PIECES)}",
            effect="edgescope's decoder gets no prompt as tokens",
            fix="--backend openvino_genai, or a server's URL",
        )
    tokens = facts["tokenizer.ggml.tokens"]
    kinds = facts.get("tokenizer.ggml.token_type") or [1] * len(tokens)
    return Tokenizer(tokens, facts.get("tokenizer.ggml.merges", ()), kinds, pre)


ENDS = ("<|endoftext|>", "<|im_start|>", "<|im_end|>")


def made(size: int, pre: str) -> Tokenizer:
    """Return a made-up tokenizer of `size` tokens (at least 259): bytes, merges of lower-case letters, and ENDS."""
    merges = list(itertools.islice(_pairs(), size - 256 - len(ENDS)))
    tokens = [*symbols(), *(merge.replace(" ", "") for merge in merges), *ENDS]
    return Tokenizer(tokens, merges, [1] * (size - len(ENDS)) + [CONTROL] * len(ENDS), pre)


def _pairs() -> Iterator[str]:
    """Yield merges for ever longer words: each is a word that an earlier merge made (or a letter) and one letter."""
    letters = [chr(c) for c in range(ord("a"), ord("z") + 1)]
    words = [symbols()[ord(" ")], *letters]
    while True:
        pairs = [(word, letter) for word in words for letter in letters]
        yield from (" ".join(pair) for pair in pairs)
        words = ["".join(pair) for pair in pairs]
