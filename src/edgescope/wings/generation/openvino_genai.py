"""OpenVINO GenAI: a .gguf file in its continuous-batching pipeline, which is also what its LLMPipeline runs on.

Requests join the batch as they come. One thread at a time takes a step for all of them, and stamps the tokens that the
step gave; the others wait, so one request costs no handover and several are answered together.

The pipeline has no call that tells its settings. It prints the compiled model's properties while it loads if
OPENVINO_LOG_LEVEL asks for it: they are read from there, and what is not printed is not claimed.
"""

from __future__ import annotations

import os
import re
import sys
import tempfile
import threading
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
import openvino as ov
import openvino_genai as genai

from edgescope.backends.base import Artifact, Spec, checked, flag, threads_of
from edgescope.errors import ModelError, UnsupportedError, UsageError
from edgescope.models.base import Model
from edgescope.records import Effective, Place
from edgescope.wings.generation.about import AboutGenAi
from edgescope.wings.generation.engine import BrokenAnswer, Generated, Request
from edgescope.wings.generation.gguf_file import GgufFile
from edgescope.wings.generation.memory import Held

LOG_LEVEL = "OPENVINO_LOG_LEVEL"
TELLS = "4"
"""The level from which the pipeline prints its properties."""
PROPERTY = re.compile(r"^ {2}([A-Z_]+): (.*)$", re.MULTILINE)
TYPES = {"f32": "fp32", "f16": "fp16", "bf16": "bf16"}
WHOLE_PROMPT = 1 << 20
"""Tokens that a step may take: a prompt is then one step, as in LLMPipeline."""
HINTS = ("f32", "bf16", "f16")
CACHES = {"u8": 1.0, "u4": 0.5, "f16": 2.0, "bf16": 2.0, "f32": 4.0}
"""Bytes of a number in the cache."""
COPIES, COPIES_OF = (3.07, 2.0), {"F16": (4.35, 4.6)}
"""How often the weights of the file are in memory: while the pipeline is made, and after the first answer, which packs
them once more; the second by their type (benchmarks/generation_memory.py)."""
LOOKED_UP, ENGINE = 2, 60 * 2**20
"""Bytes of a number of the embedding, kept beside the packed weights, and of the engine itself."""


class _Open:
    """A request that is being answered."""

    def __init__(self, handle: Any, asked: int) -> None:
        self.handle, self.asked = handle, asked
        self.tokens: list[int] = []
        self.times: list[int] = []
        self.reason: Any = None

    def read(self, now_ns: int) -> None:
        """Take the tokens that the last step gave."""
        while self.handle.can_read():
            for part in self.handle.read().values():
                self.tokens += part.generated_ids
                self.times += [now_ns] * len(part.generated_ids)
                self.reason = part.finish_reason

    @property
    def over(self) -> bool:
        return len(self.tokens) >= self.asked or self.handle.get_status() != genai.GenerationStatus.RUNNING


class GenAiSession:
    """One pipeline; `generate` may be called by several threads at once."""

    def __init__(self, pipeline: Any, told: Mapping[str, str], model: GgufFile, place: Place) -> None:
        self.pipeline, self.told, self.model, self.place = pipeline, told, model, place
        self.tokenizer = pipeline.get_tokenizer()
        self.turn, self.open, self.count = threading.Lock(), list[_Open](), 0

    def generate(self, request: Request) -> Generated:
        """Answer greedily, as many tokens as the request forces."""
        self._within(request)
        mine = self._added(request)
        while not mine.over:
            with self.turn:
                if not mine.over:
                    self._step()
        if len(mine.tokens) != request.output_tokens:
            raise BrokenAnswer("closed_early", f"{len(mine.tokens)} tokens of {request.output_tokens}")
        return Generated(
            times_ns=mine.times,
            counts=[1] * len(mine.times),
            output_tokens=len(mine.tokens),
            prompt_tokens=len(request.tokens),
            tokens=tuple(mine.tokens),
        )

    def _added(self, request: Request) -> _Open:
        ids = ov.Tensor(np.array([request.tokens], dtype=np.int64))
        with self.turn:
            self.count += 1
            handle = self.pipeline.add_request(self.count, ids, _greedy(request.output_tokens))
            mine = _Open(handle, request.output_tokens)
            self.open.append(mine)
        return mine

    def _step(self) -> None:
        self.pipeline.step()
        now = time.monotonic_ns()
        for each in self.open:
            each.read(now)
        self.open = [each for each in self.open if not each.over]

    def _within(self, request: Request) -> None:
        whole = len(request.tokens) + request.output_tokens
        if self.context and whole > self.context:
            raise UsageError(
                "E-GEN-1",
                f"{len(request.tokens)} tokens of prompt and {request.output_tokens} of answer do not fit",
                evidence=f"{self.model.info.name} was made for {self.context} tokens in all",
                effect="Nothing was measured",
                fix=f"--workload-option prompt_tokens={max(1, self.context - request.output_tokens)}",
            )

    def encode(self, text: str) -> tuple[int, ...] | None:
        """Return a text's tokens, without special ones."""
        ids = self.tokenizer.encode(text, add_special_tokens=False).input_ids
        return tuple(int(i) for i in ids.data[0])

    def decode(self, tokens: Sequence[int]) -> str:
        """Return the text of some tokens."""
        return str(self.tokenizer.decode(list(tokens)))

    @property
    def context(self) -> int | None:
        """Return the length that the file states."""
        return self.model.architecture.context

    def effective(self) -> Effective:
        """Return what the compiled model says of itself; the precision is that of the file's weights."""
        told = self.told.get
        threads = told("INFERENCE_NUM_THREADS", "")
        found = told("EXECUTION_DEVICES", "").split(".")[0]
        device = self.place.name if found == self.place.called("openvino") else found.lower() or "unknown"
        return Effective(
            device,
            self.model.written or "fp32",
            int(threads) if threads.isdigit() else None,
            "; ".join(filter(None, self._evidence())),
        )

    def _evidence(self) -> Iterator[str]:
        told = self.told.get
        if not self.told:
            yield "the pipeline printed no properties: threads, device and arithmetic are not known"
            return
        kinds = ", ".join(f"{n / 1e6:.0f} M {kind}" for kind, n in self.model.kinds.most_common() if n >= 1e6)
        yield f"the file's weights {kinds or self.model.written}"
        hint = told("INFERENCE_PRECISION_HINT")
        yield f"compiled model: arithmetic {TYPES.get(hint, hint)}" if hint else "arithmetic not told"
        group = told("DYNAMIC_QUANTIZATION_GROUP_SIZE", "0")
        yield f"activations may be rounded to int8 in groups of {group}" if group != "0" else ""
        yield f"cache {told('KV_CACHE_PRECISION')}" if told("KV_CACHE_PRECISION") else ""

    def held(self) -> Held:
        """Return how the pipeline holds the file: it keeps the type of its weights."""
        a, weights = self.model.architecture, self.model.weight_bytes
        embedding = self.model.tensors["token_embd.weight"].bytes
        hint = self.told.get("INFERENCE_PRECISION_HINT", "")
        loading, loaded = COPIES_OF.get(self.model.written, COPIES)
        beside = 0 if self.model.written in COPIES_OF else LOOKED_UP * a.vocabulary * a.width
        return Held(
            a,
            read_bytes=weights - (0 if a.tied else embedding),
            weight_bytes=loaded * weights + beside * (1 if a.tied else 2),
            kv_bytes=CACHES.get(self.told.get("KV_CACHE_PRECISION", ""), 2.0),
            loading_bytes=loading * weights,
            engine_bytes=ENGINE,
            arithmetic=TYPES.get(hint, ""),
            on_host=self.place.is_host,
        )

    def close(self) -> None:
        """Free the pipeline."""
        del self.pipeline, self.tokenizer


def _greedy(tokens: int) -> Any:
    """Return how an answer of exactly so many tokens is asked for."""
    config = genai.GenerationConfig()
    config.max_new_tokens = config.min_new_tokens = tokens
    config.ignore_eos, config.do_sample, config.apply_chat_template = True, False, False
    return config


class OpenVinoGenAi(AboutGenAi):
    """openvino_genai: a GGUF file of an architecture that it knows, on a CPU or an Intel GPU or NPU."""

    OPTIONS: ClassVar[Mapping[str, str]] = {
        "threads": "on cpu: inference threads (all cores)",
        "precision_hint": f"arithmetic: {', '.join(HINTS)} (the engine's choice)",
        "kv_cache": f"precision of the cache: {', '.join(CACHES)} (the engine's choice)",
        "prefix_cache": "keep the beginnings of prompts: true or false (false)",
    }

    def prepare(self, model: Model, spec: Spec, folder: Path) -> Artifact:
        """Return the file itself: the engine compiles it when it loads."""
        checked("openvino_genai", spec, self.OPTIONS)
        _settings(spec), _scheduler(spec)
        if not isinstance(model, GgufFile):
            raise UnsupportedError(
                "E-GEN-2",
                f"openvino_genai runs .gguf files, not {model.info.name}",
                effect="Nothing was measured",
                fix="edgescope backends",
            )
        if spec.precision != "as_is":
            raise UnsupportedError(
                "E-GEN-5",
                f"the weights of {model.info.name} are {model.written or 'fp32'} and stay so, not {spec.precision}",
                effect="Nothing was measured",
                fix="--option precision_hint=bf16, for the arithmetic",
            )
        return Artifact(model, spec, model.path, model.info.digest)

    def load(self, artifact: Artifact) -> GenAiSession:
        """Return a session whose pipeline has compiled the file."""
        spec, model = artifact.spec, artifact.model
        assert isinstance(model, GgufFile)
        name = spec.place.called("openvino")
        with _printed() as said:
            try:
                pipeline = genai.ContinuousBatchingPipeline(
                    str(artifact.path), _scheduler(spec), name, _settings(spec)
                )
            except (RuntimeError, IndexError) as error:
                raise _unreadable(model, error) from error
        return GenAiSession(pipeline, dict(PROPERTY.findall(said())), model, spec.place)


def _scheduler(spec: Spec) -> Any:
    """Return how requests join: a prompt in one step, its beginning kept for later ones only if that is asked for."""
    found = genai.SchedulerConfig()
    found.max_num_batched_tokens = WHOLE_PROMPT
    found.enable_prefix_caching = flag(spec, "prefix_cache")
    return found


def _settings(spec: Spec) -> dict[str, Any]:
    """Return the properties that a trial asks for; UsageError for a value that there is not."""
    found: dict[str, Any] = {}
    if (threads := threads_of(spec)) is not None:
        if not spec.place.is_host:
            raise UsageError("E-OPT-4", "threads: only on the CPU", fix="--device cpu")
        found["INFERENCE_NUM_THREADS"] = threads
    for option, key, known in (
        ("precision_hint", "INFERENCE_PRECISION_HINT", HINTS),
        ("kv_cache", "KV_CACHE_PRECISION", CACHES),
    ):
        value = spec.options.get(option)
        if value is not None and value not in known:
            raise UsageError("E-OPT-3", f"{option} must be one of {', '.join(known)}, not {value!r}")
        if value is not None:
            found[key] = value
    return found


def _unreadable(model: GgufFile, error: Exception) -> ModelError:
    return ModelError(
        "E-GEN-3",
        f"OpenVINO GenAI cannot load {model.info.name}",
        evidence=" ".join(str(error).split())[-300:],
        effect="Nothing was measured",
        fix="another quantisation of the model (Q4_0, Q4_1, Q8_0 or F16), or another engine",
    )


@contextmanager
def _printed() -> Iterator[Any]:
    """Hold stdout, which C++ writes to as well, and yield a function that returns what was written to it."""
    before, sys_out = os.environ.get(LOG_LEVEL), sys.stdout
    sys_out.flush()
    kept = os.dup(1)
    with tempfile.TemporaryFile() as file:
        os.environ[LOG_LEVEL] = TELLS
        os.dup2(file.fileno(), 1)
        text = ""
        try:
            yield lambda: text
        finally:
            os.dup2(kept, 1)
            os.close(kept)
            os.environ.pop(LOG_LEVEL) if before is None else os.environ.__setitem__(LOG_LEVEL, before)
            file.seek(0)
            text = file.read().decode("utf-8", "replace")
