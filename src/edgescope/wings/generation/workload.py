"""One unit is one request: a prompt goes in, and its answer comes token by token.

Every prompt has the length in tokens that was asked for, and every answer is made to reach its own, so that runs
compare. The first prompt of a length costs an engine more (it plans for its shapes), so each length is warmed up before
anything is timed (warming.py); what the very first answer took is `first_s`. The samples of a unit are the tokens of
its answer: throughput is in output tokens per second, energy per sample is energy per output token.
"""

from __future__ import annotations

import contextlib
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import replace
from typing import Any, ClassVar

from edgescope import registry
from edgescope.backends.base import Artifact, SelfDriven, spec_of
from edgescope.errors import Message, UnsupportedError
from edgescope.models.base import Model
from edgescope.options import Option, read
from edgescope.records import (
    Absent,
    Field,
    GateOutcome,
    Json,
    Measured,
    Queries,
    Result,
    Spans,
    Trial,
    Window,
)
from edgescope.wings.generation import chat, correctness, lengths, phases
from edgescope.wings.generation.engine import Apart, BrokenAnswer, Generates, Holds, Request
from edgescope.wings.generation.figures import Answer, Answers, Figures, Limits, spans
from edgescope.wings.generation.memory import Room
from edgescope.wings.generation.prompts import TOKENS_A_WORD, Prompts
from edgescope.wings.generation.review import Review
from edgescope.wings.generation.warming import warm
from edgescope.workloads.base import OpenWorkload, Parts, Program, SampleOutput
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
        "lengths": Option("", "a file of real lengths: prompt_tokens,output_tokens in each row", file=True),
        "template": Option(
            "none", "chat: the model's chat template, inside the prompt's length", ("none", "chat")
        ),
        "system": Option("", "the system prompt of the chat template"),
        "prompts": Option(
            "differ", "shared: one prompt again and again, as a prefix cache likes it", ("differ", "shared")
        ),
        "ttft_limit": Option(
            0.0, "seconds to the first token that a request must keep for goodput", least=0.0
        ),
        "itl_limit": Option(0.0, "seconds a token that a request must keep for goodput", least=0.0),
        "phase_s": Option(
            0.0,
            "seconds of prompts alone after the window, which tell prefill's joules from decode's",
            least=0.0,
        ),
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
        lengths.of(read(NAME, trial.workload_options, self.OPTIONS))
        self.check(trial)
        return parts.backend(trial.backend).prepare(parts.model(trial), spec_of(trial), parts.folder)

    def program(self, trial: Trial, parts: Parts) -> Program | None:
        """Return llama-bench, which owns its loop; None of an engine that edgescope asks."""
        backend = parts.backend(trial.backend)
        if not isinstance(backend, SelfDriven):
            return None
        artifact, owner = self._artifact(trial, parts), backend
        unjudged = replace(correctness.UNJUDGED, evidence=f"{trial.backend} shows no answers")
        return Program(
            model=artifact.model.info,
            drive=lambda: owner.drive(artifact, trial),
            verify=lambda driven, machine: unjudged,
            artifact=described(artifact),
        )

    @contextmanager
    def open(self, trial: Trial, parts: Parts) -> Iterator[OpenWorkload]:
        """Load the model and warm it up; close on leaving."""
        artifact = self._artifact(trial, parts)
        options = read(NAME, trial.workload_options, self.OPTIONS)
        room, start = Room.now(), time.monotonic_ns()
        session: Any = parts.backend(trial.backend).load(artifact)
        loaded_s = (time.monotonic_ns() - start) * 1e-9
        with contextlib.closing(session):
            asking = Asking(session, options, trial, artifact.model)
            warmed = warm(asking.short, asking.lengths.warmed, asking.lengths.longest[1])
            work = blocking(asking.unit, trial.in_flight, asking.failures)
            held = session.held() if isinstance(session, Holds) else None
            try:
                yield OpenWorkload(
                    work=work,
                    model=artifact.model.info,
                    effective=session.effective,
                    verify=lambda machine: judged(session, trial, parts),
                    facts=_facts(loaded_s, warmed.first_s),
                    artifact={**described(artifact), **asking.about()},
                    failure=lambda: asking.failures.first,
                    breakdown=asking.spans,
                    metrics=asking.metrics,
                    warmed=warmed.settled,
                    watched=asking.prefills,
                    review=Review(held, room, asking.lengths.longest, asking.energy),
                    sample_output=SampleOutput,
                )
            finally:
                if isinstance(work, Pool):
                    work.close()


class Asking:
    """Asks a session, prompt after prompt, and keeps every answer."""

    def __init__(self, session: Generates, options: Mapping[str, Any], trial: Trial, model: Model) -> None:
        self.session, self.options, self.trial = session, options, trial
        self.prompts = Prompts(session.encode, trial.seed, shared=options["prompts"] == "shared")
        self.lengths = lengths.of(options)
        self.around = chat.around(model, session.encode, options["template"], options["system"])
        self.answers, self.failures = Answers(), Failures()
        self._window: Window | None = None
        self._apart = 0
        """Requests so far that are no unit of the run; their prompts are counted downwards, from -1."""
        self.energy = Energies()

    def request(self, number: int, sizes: tuple[int, int] | None = None) -> Request:
        """Return request `number`, of its own lengths or of others; one below 0 differs from those of the run."""
        length, asked = sizes or self.lengths.of(number)
        seed = number % (1 << 32)
        if tokens := self.around.put(lambda own: self.prompts.tokens(seed, own), length):
            return Request(tokens, self.session.decode(tokens) if number < 0 else "", asked)
        return Request((), self.prompts.words(seed, max(1, round(length / TOKENS_A_WORD))), asked)

    def answer(self, number: int, sizes: tuple[int, int] | None = None) -> Answer:
        """Answer one request."""
        request = self.request(number, sizes)
        issued = time.monotonic_ns()
        return Answer(issued, self.session.generate(request))

    def short(self, prompt: int, output: int) -> Answer:
        """Answer a request that is no unit of the run."""
        self._apart -= 1
        return self.answer(self._apart, (prompt, output))

    def prefills(self) -> None:
        """Read prompts back to back, for their energy."""
        if seconds := self.options["phase_s"]:
            self.energy.prompts = phases.back_to_back(
                lambda n: self.short(self.lengths.of(n)[0], 1), max(seconds, phases.RESOLVED_S)
            )

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
        limits = Limits(self.options["ttft_limit"], self.options["itl_limit"], self.trial.deadline_s or 0.0)
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
        own = len(self.around.before) + len(self.around.after)
        return {"sampling": "greedy", **self.options, "template_tokens": own}


class Energies:
    """What a run took by phase; its prompts come after the window."""

    def __init__(self) -> None:
        self.prompts: phases.Stretch | None = None

    def __call__(self, result: Result) -> Mapping[str, Field]:
        """Return the figures of a result."""
        return phases.figures(result, self.prompts)


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


def _facts(load_s: float, first_s: float) -> dict[str, Field]:
    return {
        "build_s": Absent("nothing is built beforehand"),
        "load_s": Measured(load_s, "s"),
        "first_s": Measured(first_s, "s"),
    }
