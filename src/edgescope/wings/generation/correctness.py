"""The gate of generation: an engine must answer as the file's own weights do, computed in fp32.

Two questions, both about the text that ships. From sixteen places of it an engine goes on greedily, token by token,
through its own cache; its answer is compared with fp32's up to the first token that differs, since after that the two
read different texts. As no miss follows from an earlier one, Wilson's interval holds. And where an engine shows scores,
the mean Kullback-Leibler divergence of its next token from fp32's, over a stretch of the text that both are given.

The fp32 side is computed once for a file and kept: the answers, and of each distribution the 128 likeliest tokens; the
rest counts as one, which makes the divergence a lower bound, and a tight one where the weights were trained.
"""

from __future__ import annotations

import contextlib
import io
import zipfile
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from edgescope import cache
from edgescope.backends.base import Spec
from edgescope.errors import Message, UnavailableError, UnsupportedError
from edgescope.models.base import Model
from edgescope.records import Absent, Field, Measured, Trial, Verification, digest
from edgescope.records.lazy import NDArray, np
from edgescope.stats.pairs import wilson
from edgescope.verify.judge import required_agreement
from edgescope.wings.generation import tokenizer
from edgescope.wings.generation.engine import BrokenAnswer, Generates, Request, Scores
from edgescope.wings.generation.gguf_file import GgufFile, header
from edgescope.wings.generation.prompts import text
from edgescope.workloads.base import Parts

Decode = Callable[[Sequence[int]], str]
"""Makes text of tokens."""
VERSION = 1  # raise this when the text or the questions change
PLACES, GIVEN, ASKED = 16, 16, 16
"""Places in the text, tokens given at each, tokens asked for."""
STRETCH, LIKELIEST = 256, 128
"""Tokens of the text whose next token's distribution is compared, and tokens kept of each distribution."""
UNTRAINED_FLOOR = 0.5
"""Least agreement where nobody trained the weights: their best token leads by little, so that rounding an activation
moves it often, while a wrong network agrees by chance, once in a vocabulary."""
KL_CEILING = 0.1
"""Most nats a token: perplexity on fp32's own text then grows by a tenth at most. Rounding activations to int8 and the
cache to eight bits costs a tenth of that."""
ORIGIN = "the file's weights in fp32"
EXPECTED = 0.3
"""Least share of the text's own tokens among the likeliest of a trained model; of random weights they are as many as
LIKELIEST is of the vocabulary."""
UNJUDGED = Message(
    "W-GEN-1",
    "the answers were not compared with those of the file's weights in fp32",
    effect="It is timed, and whether it answers rightly is not known",
    fix="edgescope docs workloads",
)


@dataclass(frozen=True)
class Truth:
    """What fp32 says."""

    given: NDArray[np.int64]
    """(places, GIVEN) tokens of the text."""
    answers: NDArray[np.int64]
    """(places, ASKED) the tokens that it goes on with."""
    text: NDArray[np.int64]
    """(n,) tokens whose next ones are judged."""
    ids: NDArray[np.int64]
    """(n, LIKELIEST) the likeliest next tokens."""
    logs: NDArray[np.float32]
    """(n, LIKELIEST) the logarithms of their probabilities."""

    @property
    def trained(self) -> bool:
        """Return whether the weights expect the text that they read, as only training makes them."""
        chance = self.ids.shape[1] / (1 + self.ids.max())
        hits = (self.ids[:-1] == self.text[1:, None]).any(1)
        return bool(hits.mean() > max(EXPECTED, 2 * chance))


def source(trial: Trial, parts: Parts) -> Model:
    """Return the model whose weights judge a trial: its own, or what its server is said to serve."""
    named = trial.options.get("reference")
    return parts.model(trial if named is None else replace(trial, model=str(named), shapes={}))


def decoder(model: Model) -> Decode | None:
    """Return what makes text of a file's tokens; None if its tokenizer is not known here."""
    if not isinstance(model, GgufFile):
        return None
    try:
        return tokenizer.read(header(model.path, texts=True).facts, model.info.name).decode
    except UnsupportedError:
        return None


def prepare(model: Model, parts: Parts) -> Truth | Message:
    """Return what fp32 says of a model's file, computed once; or why that cannot be known."""
    if model.reference == "none":
        return replace(UNJUDGED, evidence=f"{model.info.name} shows no weights")
    try:
        backend = parts.reference(model.reference)
        return truth(model.info.digest, lambda: backend.load(backend.prepare(model, Spec(), parts.folder)))
    except (UnavailableError, UnsupportedError) as error:
        known = error.message
        return replace(UNJUDGED, evidence=f"{known.code}: {known.what}", fix=known.fix or UNJUDGED.fix)


def truth(content: str, open_fp32: Callable[[], Any]) -> Truth:
    """Return what fp32 says of a file with the hash `content`, computed once with the session of `open_fp32()`."""
    key = digest([VERSION, content, text(), PLACES, GIVEN, ASKED, STRETCH, LIKELIEST])
    path = cache.folder("references") / f"generation-{key}.npz"
    found = _read(path)
    if found is None:
        with cache.alone(path):  # what is built beside this needs the same answers
            found = _read(path)
            if found is None:
                with contextlib.closing(open_fp32()) as session:
                    found = _kept(path, computed(session))
    return found


def computed(session: Any) -> Truth:
    """Return what a session says, which both generates and scores."""
    tokens = session.encode(text())
    step = max(1, (len(tokens) - GIVEN) // PLACES)
    given = [tokens[n * step : n * step + GIVEN] for n in range(PLACES)]
    answers = [session.generate(Request(each, "", ASKED)).tokens for each in given]
    stretch = tokens[: min(STRETCH, session.context - 1)]
    logs = _log_shares(session.scores(stretch))
    ids = np.argsort(-logs, axis=1)[:, :LIKELIEST]
    kept = np.take_along_axis(logs, ids, axis=1)
    return Truth(np.array(given), np.array(answers), np.array(stretch), ids, kept.astype(np.float32))


def _read(path: Path) -> Truth | None:
    try:
        with np.load(path) as held:
            return Truth(**{name: held[name] for name in Truth.__dataclass_fields__})
    except (OSError, ValueError, KeyError, EOFError, zipfile.BadZipFile):
        return None


def _kept(path: Path, found: Truth) -> Truth:
    file = io.BytesIO()
    np.savez_compressed(file, **vars(found))
    cache.write_bytes(path, file.getvalue())
    return found


def judge(
    session: Generates,
    said: Truth,
    *,
    precision: str,
    trained: bool,
    min_agreement: float | None = None,
    decode: Decode | None = None,
) -> Verification:
    """Return whether a session answers as fp32 does; it fails if it breaks off, or gives no tokens and no `decode`.

    `min_agreement` asks for more than the floor of the precision; UsageError if it asks for less.
    """
    floor = required_agreement(precision, min_agreement)
    if not trained and min_agreement is None:
        floor = UNTRAINED_FLOOR
    try:
        share = agreement(session, said, decode)
    except BrokenAnswer as error:
        return Verification(
            False, "none", {}, floor, f"an answer to the gate's text is broken: {error}", ORIGIN
        )
    apart: Field = Absent("the engine shows no scores")
    if isinstance(session, Scores):
        apart = divergence(session.scores(said.text.tolist()), said)
    near = isinstance(apart, Absent) or apart.value <= KL_CEILING
    passed = share.lo is not None and share.lo >= floor and near
    return Verification(
        passed,
        "greedy_agreement",
        {"greedy_agreement": share, "mean_kl": apart},
        floor,
        _told(share, apart, floor, trained=trained),
        ORIGIN,
    )


def _told(share: Measured, apart: Field, floor: float, *, trained: bool) -> str:
    low = share.lo or 0.0
    first = (
        f"greedy answers agree with fp32 at {100 * share.value:.1f} % of {share.n} tokens "
        f"(95 % interval from {100 * low:.1f} %, must reach {100 * floor:.0f} %)"
    )
    second = (
        f"; mean KL {apart.value:.2g} nats (at most {KL_CEILING:g})" if isinstance(apart, Measured) else ""
    )
    return first + second + ("" if trained else "; untrained weights: only a gross fault shows")


def agreement(session: Generates, said: Truth, decode: Decode | None = None) -> Measured:
    """Return the share of tokens that are fp32's, each answer up to its first other one; with Wilson's interval.

    Where an engine gives text alone, a token is fp32's if the text begins with that of fp32's answer up to it: `decode`
    makes text of its tokens, as its file does.
    """
    hits = seen = 0
    for given, right in zip(said.given.tolist(), said.answers.tolist(), strict=True):
        got = session.generate(Request(tuple(given), (decode or session.decode)(given), len(right)))
        if got.tokens is None and decode is None:
            raise BrokenAnswer("empty", "the engine gives text and no tokens")
        alike = _alike(got.tokens, right) if got.tokens is not None else _spelt_alike(got.text, right, decode)
        hits += alike
        seen += min(alike + 1, len(right))
    found = wilson(hits, seen)
    return Measured(found.value, "share", found.lo, found.hi, seen)


def _alike(got: Sequence[int], right: Sequence[int]) -> int:
    pairs = zip(got, right, strict=False)
    return next((n for n, (mine, other) in enumerate(pairs) if mine != other), min(len(got), len(right)))


def _spelt_alike(text: str, right: Sequence[int], decode: Decode | None) -> int:
    """Return how many of these tokens a text begins with; a token may end within a character."""
    assert decode is not None
    return max(n for n in range(len(right) + 1) if text.startswith(decode(right[:n])))


def divergence(scores: NDArray[Any], said: Truth) -> Field:
    """Return the mean KL divergence in nats of the next token's distributions from fp32's, each cut to what is kept."""
    if scores.shape[0] != len(said.text) or not np.isfinite(scores).all():
        return Measured(float("inf"), "nats", n=len(said.text))
    mine = np.take_along_axis(_log_shares(scores), said.ids, axis=1)
    theirs = said.logs.astype(np.float64)
    rest = _log_rest(theirs), _log_rest(mine)
    whole = np.exp(theirs) * (theirs - mine)
    each = whole.sum(1) + np.exp(rest[0]) * (rest[0] - rest[1])
    return Measured(float(each.mean()), "nats", n=len(each))


def _log_rest(logs: NDArray[Any]) -> NDArray[np.float64]:
    """Return the logarithm of what probability is left beside the kept tokens; a tiny one at least."""
    left: NDArray[np.float64] = np.log(np.maximum(1 - np.exp(logs.astype(np.float64)).sum(1), 1e-12))
    return left


def _log_shares(scores: NDArray[Any]) -> NDArray[np.float64]:
    """Return the logarithms of the probabilities, (n, vocabulary)."""
    level = scores.astype(np.float64)
    level -= level.max(1, keepdims=True)
    found: NDArray[np.float64] = level - np.log(np.exp(level).sum(1, keepdims=True))
    return found
