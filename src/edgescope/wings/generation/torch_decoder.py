"""Language models from .gguf files in plain PyTorch: the reference that judges other engines, and an engine of its own.

Weights are dequantised when they are loaded and computed with in fp32, tf32, bf16 or fp16: what the quantisation of the
file lost is in them, what an engine loses beyond that is not. Each token is taken to the host before the next one is
computed, as a reader takes it, so its time is when it could be used; on a GPU that waits for the device.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
import torch

from edgescope.backends.base import Artifact, Spec, checked, threads_of
from edgescope.backends.pytorch import module as shared
from edgescope.errors import UnsupportedError, UsageError
from edgescope.models.base import Model
from edgescope.records import Effective
from edgescope.records.lazy import NDArray
from edgescope.wings.generation import tokenizer
from edgescope.wings.generation.about import AboutDecoder
from edgescope.wings.generation.engine import Generated, Request
from edgescope.wings.generation.gguf_file import GgufFile, header
from edgescope.wings.generation.memory import Held
from edgescope.wings.generation.transformer import Cache, Transformer
from edgescope.wings.generation.weights import Weights

ENGINE = 20 * 2**20
"""Bytes that PyTorch adds to a process for the first answer of a model of no size."""


class DecoderSession:
    """One model; `generate` may be called from several threads, each answer with a cache of its own."""

    def __init__(
        self, network: Transformer, known: tokenizer.Tokenizer, spec: Spec, file_bytes: int = 0
    ) -> None:
        """`file_bytes`: of the weights in the file, which stay mapped."""
        self.network, self.known, self.spec, self.file_bytes = network, known, spec, file_bytes
        self._spare: list[Cache] = []
        self._lock = threading.Lock()

    def generate(self, request: Request) -> Generated:
        """Answer greedily, as many tokens as the request forces."""
        self.within(len(request.tokens), request.output_tokens)
        cache = self._cache(len(request.tokens) + request.output_tokens)
        with torch.inference_mode():
            tokens, times = self._decoded(
                torch.tensor(request.tokens, device=self.network.device), cache, request
            )
        self._spare.append(cache)
        return Generated(
            times_ns=times,
            counts=[1] * len(times),
            output_tokens=len(tokens),
            prompt_tokens=len(request.tokens),
            tokens=tuple(tokens),
        )

    def _decoded(self, given: torch.Tensor, cache: Cache, request: Request) -> tuple[list[int], list[int]]:
        tokens: list[int] = []
        times: list[int] = []
        for _ in range(request.output_tokens):
            given = self.network.next(given, cache)
            tokens.append(int(given.item()))  # waits for the device
            times.append(time.monotonic_ns())
        return tokens, times

    def within(self, prompt: int, output: int) -> None:
        """Raise UsageError if a prompt and its answer do not fit into the model's context, or are nothing."""
        if prompt >= 1 and output >= 1 and prompt + output <= self.context:
            return
        raise UsageError(
            "E-GEN-1",
            f"{prompt} tokens of prompt and {output} of answer do not fit",
            evidence=f"the model was made for 1 to {self.context} tokens in all",
            effect="Nothing was measured",
            fix=f"--workload-option prompt_tokens={max(1, self.context - output)}",
        )

    def _cache(self, tokens: int) -> Cache:
        """Return an empty cache, one that an earlier answer left if it has room: its pages are there already."""
        with self._lock:
            fitting = [cache for cache in self._spare if cache.room >= tokens]
            if fitting:
                self._spare.remove(fitting[0])
                fitting[0].filled = 0
                return fitting[0]
            self._spare.clear()
        return self.network.cache(tokens)

    def scores(self, tokens: Sequence[int]) -> NDArray[Any]:
        """Return the logits after each of these tokens, (tokens, vocabulary) float32."""
        self.within(len(tokens), 0 if len(tokens) == self.context else 1)
        with torch.inference_mode():
            given = torch.tensor(list(tokens), device=self.network.device)
            hidden = self.network.hidden(self.network.embed(given), self.network.cache(len(tokens)))
            found: NDArray[np.float32] = self.network.logits(hidden).float().cpu().numpy()
        return found

    def encode(self, text: str) -> tuple[int, ...] | None:
        """Return a text's tokens, without special ones."""
        return self.known.encode(text)

    def decode(self, tokens: Sequence[int]) -> str:
        """Return the text of some tokens."""
        return self.known.decode(tokens)

    @property
    def context(self) -> int:
        """Return the length that the file states."""
        return self.network.a.context

    def effective(self) -> Effective:
        """Return the dtype of the weights, the device and the threads."""
        network = self.network
        dtype = shared.NAMES[network.embedding.dtype]
        held = network.embedding.device.type
        where = self.spec.device if held == self.spec.place.called("torch").partition(":")[0] else held
        evidence = f"dtype of the weights and of the cache; cache {network.cache(1).held.dtype}".replace(
            "torch.", ""
        )
        return shared.effective(self.spec, where, dtype, evidence)

    def held(self) -> Held:
        """Return how the weights are held: dequantised, in one dtype, the file's own still mapped beside them."""
        a, size = self.network.a, self.network.dtype.itemsize
        looked_up = 0 if a.tied else a.vocabulary * a.width
        return Held(
            a,
            read_bytes=(a.params - looked_up) * size,
            weight_bytes=a.params * size + self.file_bytes,
            kv_bytes=size,
            engine_bytes=ENGINE,
            activation_bytes=size,
            arithmetic=self.effective().precision,
            on_host=self.spec.place.is_host,
        )

    def close(self) -> None:
        """Drop the weights and the caches."""
        self._spare.clear()
        del self.network


class TorchDecoder(AboutDecoder):
    """torch_decoder: fp32 and bf16 on a CPU that has it; fp32, tf32, fp16 and bf16 on a CUDA device."""

    OPTIONS: ClassVar[Mapping[str, str]] = {"threads": "intra-op threads (PyTorch's default)"}

    def prepare(self, model: Model, spec: Spec, folder: Path) -> Artifact:
        """Return the file itself: nothing is built. `as_is` is fp32: the weights as the file has them, not rounded."""
        if spec.precision == "as_is":
            spec = replace(spec, precision="fp32")
        shared.require(checked("torch_decoder", spec, self.OPTIONS))
        threads_of(spec)
        if not isinstance(model, GgufFile):
            raise UnsupportedError(
                "E-GEN-2",
                f"torch_decoder runs .gguf files, not {model.info.name}",
                effect="Nothing was measured",
                fix="edgescope bench llm:smollm2",
            )
        return Artifact(model, spec, model.path, model.info.digest)

    def load(self, artifact: Artifact) -> DecoderSession:
        """Return a session over the dequantised weights."""
        spec, model = artifact.spec, artifact.model
        assert isinstance(model, GgufFile)
        shared.settle(spec)
        held = Weights(model.path, model.tensors)
        network = Transformer(model.architecture, held.find, shared.require(spec), spec.place.called("torch"))
        facts = header(model.path, texts=True).facts
        return DecoderSession(network, tokenizer.read(facts, model.info.name), spec, model.weight_bytes)
