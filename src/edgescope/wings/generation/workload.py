"""One unit is one request: a prompt goes in, and its answer comes token by token.

Every prompt has the same length in tokens, and every answer is made to reach its length, so that runs compare. The
first prompt of a length costs an engine more (it plans for its shapes), so one request is answered before anything is
timed; what it took is `first_s`. The samples of a unit are the tokens of its answer: throughput is in output tokens
per second, energy per sample is energy per output token.
"""

from __future__ import annotations

import contextlib
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any, ClassVar

from edgescope import registry
from edgescope.backends.base import Artifact, spec_of
from edgescope.errors import Message, UnsupportedError
from edgescope.options import Option, read
from edgescope.records import (
    Absent,
    Field,
    GateOutcome,
    Json,
    Measured,
    Queries,
    Spans,
    Trial,
    Window,
)
from edgescope.wings.generation import correctness
from edgescope.wings.generation.engine import Apart, BrokenAnswer, Generates, Request
from edgescope.wings.generation.figures import Answer, Answers, Figures, Limits, spans
from edgescope.wings.generation.prompts import TOKENS_A_WORD, Prompts
from edgescope.workloads.base import OpenWorkload, Parts, SampleOutput
from edgescope.workloads.blocking import Failures, Pool, Unit, blocking
from edgescope.workloads.inference import described

NAME = "generate"
READS = frozenset({"gguf", "endpoint"})
"""What an engine reads that answers prompts."""


class Generation:
    """Asks a language model in a backend."""

    OPTIONS: ClassVar[Mapping[str, Option]] = {
        "prompt_tokens": Option(128, "tokens of each prompt", least=1),
        "output_tokens": Option(128, "tokens of each answer, whatever the model would say", least=1),
        "prompts": Option(
            "differ", "shared: one prompt again and again, as a prefix cache likes it", ("differ", "shared")
        ),
        "ttft_limit": Option(
            0.0, "seconds to the first token that a request must keep for goodput", least=0.0
        ),
        "itl_limit": Option(0.0, "seconds a token that a request must keep for goodput", least=0.0),
    }

    def check(self, trial: Trial) -> None:
        """Raise UnsupportedError for an engine that answers no prompts, and for a batch."""
        able = [name for name in registry.BACKENDS if registry.facts(name).READS & READS]
        problems = (
            (trial.backend in able, f"{trial.backend} answers no prompts", f"--backend {' or '.join(able)}"),
            (
                trial.batch == 1,
                f"a request holds one prompt, not {trial.batch}",
                f"--in-flight {trial.batch}",
            ),
        )
        for right, what, fix in problems:
            if not right:
                raise UnsupportedError("E-GEN-4", what, effect="Nothing was measured", fix=fix)

    def prepare(self, trial: Trial, parts: Parts) -> None:
        """Make or find the engine's file, and what its weights say in fp32."""
        self._artifact(trial, parts)
        correctness.prepare(correctness.source(trial, parts), parts)

    def _artifact(self, trial: Trial, parts: Parts) -> Artifact:
        read(NAME, trial.workload_options, self.OPTIONS)
        self.check(trial)
        return parts.backend(trial.backend).prepare(parts.model(trial), spec_of(trial), parts.folder)

    @contextmanager
    def open(self, trial: Trial, parts: Parts) -> Iterator[OpenWorkload]:
        """Load the model and answer one request of the trial's lengths; close on leaving."""
        artifact = self._artifact(trial, parts)
        options = read(NAME, trial.workload_options, self.OPTIONS)
        start = time.monotonic_ns()
        session: Any = parts.backend(trial.backend).load(artifact)
        loaded = time.monotonic_ns()
        with contextlib.closing(session):
            asking = Asking(session, options, trial.seed)
            asking.answer(-1)
            first = time.monotonic_ns()
            work = blocking(asking.unit, trial.in_flight, asking.failures)
            try:
                yield OpenWorkload(
                    work=work,
                    model=artifact.model.info,
                    effective=session.effective,
                    verify=lambda machine: judged(session, trial, parts),
                    facts=_facts(loaded - start, first - loaded),
                    artifact={**described(artifact), **asking.about()},
                    failure=lambda: asking.failures.first,
                    breakdown=asking.spans,
                    metrics=asking.metrics,
                    sample_output=SampleOutput,
                )
            finally:
                if isinstance(work, Pool):
                    work.close()


class Asking:
    """Asks a session, prompt after prompt, and keeps every answer."""

    def __init__(self, session: Generates, options: Mapping[str, Any], seed: int) -> None:
        self.session, self.options = session, options
        self.prompts = Prompts(session.encode, seed, shared=options["prompts"] == "shared")
        self.answers, self.failures = Answers(), Failures()
        self._window: Window | None = None

    def request(self, number: int) -> Request:
        """Return request `number`; the one before the first differs from all others, too."""
        length, asked = self.options["prompt_tokens"], self.options["output_tokens"]
        if tokens := self.prompts.tokens(number % (1 << 32), length):
            return Request(tokens, self.session.decode(tokens) if number < 0 else "", asked)
        return Request(
            (), self.prompts.words(number % (1 << 32), max(1, round(length / TOKENS_A_WORD))), asked
        )

    def answer(self, number: int) -> Answer:
        """Answer one request."""
        request = self.request(number)
        issued = time.monotonic_ns()
        return Answer(issued, self.session.generate(request))

    def unit(self, number: int) -> Unit:
        """Answer one request of the run."""
        try:
            answer = self.answer(number)
        except BrokenAnswer as error:
            self.answers.broken[error.kind] += 1
            raise
        self.answers.found[number] = answer
        return Unit(answer.got.output_tokens, answer.marks())

    def metrics(self, rows: Queries, window: Window) -> Mapping[str, Field]:
        """Return the metrics of the window."""
        self._window = window
        limits = Limits(self.options["ttft_limit"], self.options["itl_limit"])
        unseen = self.session.unseen() if isinstance(self.session, Apart) else {}
        return {**Figures(self.answers.of(rows), rows, window).all(limits, self.answers.broken), **unseen}

    def spans(self) -> Spans:
        """Return the phases of every answer within the window."""
        w = self._window
        found = self.answers.found.items()
        return spans(
            (n, a) for n, a in found if w is None or (w.start_ns <= a.issued_ns and a.last_ns <= w.stop_ns)
        )

    def about(self) -> dict[str, Json]:
        """Return how it was asked."""
        return {"sampling": "greedy", "template": "none", **self.options}


def judged(session: Generates, trial: Trial, parts: Parts) -> GateOutcome:
    """Return whether a session answers as its file's weights do in fp32, or why that cannot be judged."""
    model = correctness.source(trial, parts)
    said = correctness.prepare(model, parts)
    if isinstance(said, Message):
        return said
    return correctness.judge(
        session,
        said,
        precision=trial.precision,
        trained=said.trained,
        decode=correctness.decoder(model),
        min_agreement=trial.min_agreement,
    )


def _facts(load_ns: int, first_ns: int) -> dict[str, Field]:
    return {
        "build_s": Absent("nothing is built beforehand"),
        "load_s": Measured(load_ns / 1e9, "s"),
        "first_s": Measured(first_ns / 1e9, "s"),
    }
