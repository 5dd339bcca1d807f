"""llama.cpp's own benchmark, `llama-bench`, as an engine that owns its loop: it is started, watched and read back.

What it measures is not what a server's user sees. Its prompts are random tokens, nothing is sampled, no text is made
and no template read. A query here is its test `-pg P,N`: a prompt of P tokens and N tokens behind it, as one time, so
there is no moment of the first token. Prefill is its test `-p P`, decode its test `-n N -d P`: N tokens behind P that
were read before the clock starts. Each repetition of a test is one sample; between two of them it clears its cache.

It says how long each repetition took and not when it began: the queries stand back to back here, up to the moment at
which their line was printed.
"""

from __future__ import annotations

import json
import math
import os
import shutil
import subprocess
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar

from edgescope.backends.base import Artifact, ProgramRun, Session, Spec, checked, spec_of, threads_of
from edgescope.errors import DeviceError, UnavailableError, UnsupportedError, UsageError
from edgescope.models.base import Batch, Model
from edgescope.process import how_ended
from edgescope.records import QUERY_DTYPES, Absent, Effective, Field, Json, Queries, Trial, Window
from edgescope.records.lazy import NDArray, np
from edgescope.wings.generation.about import AboutLlamaBench
from edgescope.wings.generation.figures import rate
from edgescope.wings.generation.gguf_file import GgufFile

VARIABLE, PROGRAM = "EDGESCOPE_LLAMA_BENCH", "llama-bench"
RUN_S = 6 * 3600.0
"""Most seconds of one run; the trial's own time-out is usually shorter."""
LEAST, MOST = 3, 10_000
"""Repetitions of a test."""


class LlamaBench(AboutLlamaBench):
    """The backend: finds the program, and lets it run its tests."""

    OPTIONS: ClassVar[Mapping[str, str]] = {
        "threads": "threads (its own choice: the physical cores)",
        "program": f"path of llama-bench ({VARIABLE}, PATH)",
        "flags": "more flags of it, as '-fa 1 -ctk q8_0' (none)",
    }

    @staticmethod
    def usable(device: str) -> None:
        """Raise UnavailableError if there is no llama-bench."""
        program(None)

    def prepare(self, model: Model, spec: Spec, folder: Path) -> Artifact:
        """Return the file itself: nothing is built."""
        checked("llama_bench", spec, self.OPTIONS)
        threads_of(spec)
        if not isinstance(model, GgufFile):
            raise UnsupportedError(
                "E-GEN-2",
                f"llama-bench runs .gguf files, not {model.info.name}",
                effect="Nothing was measured",
                fix="edgescope bench llm:smollm2",
            )
        return Artifact(model, spec, model.path, model.info.digest)

    def load(self, artifact: Artifact) -> Session:
        """Raise an error: the program owns its loop."""
        raise UsageError("E-GEN-21", "llama-bench answers no prompts", fix="--workload generate")

    def drive(self, artifact: Artifact, trial: Trial) -> Sequence[ProgramRun]:
        """Run its tests, each as long as the trial says; UsageError for what it cannot do."""
        for wrong, what, fix in (
            (trial.processes > 1 or trial.in_flight > 1, "runs one prompt at a time", "--in-flight 1"),
            (trial.scenario != Trial.scenario, "offers no load", "--scenario single_stream"),
        ):
            if wrong:
                raise UsageError("E-GEN-21", f"llama-bench {what}", effect="Nothing was measured", fix=fix)
        return [Tests(artifact, trial).run()]


def program(named: str | None) -> str:
    """Return the path of llama-bench; UnavailableError E-GEN-22 if there is none."""
    wanted = named or os.environ.get(VARIABLE) or PROGRAM
    if (found := shutil.which(wanted)) is None:
        raise UnavailableError(
            "E-GEN-22",
            f"there is no llama-bench at {wanted}" if wanted != PROGRAM else "llama-bench was not found",
            evidence=f"looked at {VARIABLE} and PATH",
            fix=f"build llama.cpp, then {VARIABLE}=/path/to/llama-bench",
        )
    return found


@dataclass(frozen=True)
class Tested:
    """One test of the program: its own row, and when its line came."""

    row: Mapping[str, Any]
    came_ns: int

    @property
    def seconds(self) -> NDArray[np.float64]:
        """Return the seconds of each repetition."""
        return np.asarray(self.row["samples_ns"], np.float64) * 1e-9


@dataclass(frozen=True)
class Tests:
    """The tests of one trial."""

    artifact: Artifact
    trial: Trial

    def run(self) -> ProgramRun:
        """Run each test once to learn what it takes, then as often as the trial's seconds hold."""
        read, written = (
            int(self.trial.workload_options.get(n, 128)) for n in ("prompt_tokens", "output_tokens")
        )
        tests = {
            "prompt": ["-p", str(read), "-n", "0"],
            "decode": ["-p", "0", "-n", str(written), "-d", str(read)],
            "query": ["-p", "0", "-n", "0", "-pg", f"{read},{written}"],
        }
        found = dict[str, Tested]()
        for name, words in tests.items():
            once = float(self._tested(words, 1).seconds[0])
            found[name] = self._tested(words, self._times(once))
        queries, window = rows(found["query"], written)
        return ProgramRun(
            queries=queries,
            window=window,
            effective=effective(found["query"].row, self.trial),
            answer=_no_answer,
            facts=facts(found, read, written),
            notes={"program": str(self._program), "definitions": DEFINITIONS} | described(found["query"].row),
        )

    def _times(self, once_s: float) -> int:
        if self.trial.max_queries is not None:
            return self.trial.max_queries
        return max(LEAST, min(MOST, math.ceil(self.trial.min_s / max(once_s, 1e-6))))

    @property
    def _program(self) -> str:
        named = self.trial.options.get("program")
        return program(None if named is None else str(named))

    def _tested(self, words: Sequence[str], times: int) -> Tested:
        spec = spec_of(self.trial)
        threads = threads_of(spec)
        words = ["-m", str(self.artifact.path), "-r", str(times), "-o", "jsonl", *words]
        words += ["-ngl", "0" if self.trial.device == "cpu" else "99"]
        words += ["-t", str(threads)] if threads else []
        words += str(self.trial.options.get("flags", "")).split()
        ran = subprocess.run(
            [self._program, *words],
            check=False,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            timeout=RUN_S,
        )
        came = time.monotonic_ns()
        found = tested(ran.stdout)
        if ran.returncode or found is None:
            last = " ".join(ran.stderr.strip().splitlines()[-1:])[:300]
            raise DeviceError(
                "E-GEN-23",
                "llama-bench measured nothing",
                evidence=f"it {how_ended(ran.returncode)}: {last}",
                effect="There is no number for this cell",
                fix="run it by hand: " + " ".join([PROGRAM, *words]),
            )
        return Tested(found, came)


def tested(text: str) -> Mapping[str, Any] | None:
    """Return the one test in what `-o jsonl` wrote; None if there is none whose repetitions are positive numbers."""
    for line in text.splitlines():
        try:
            row = json.loads(line)
        except ValueError:
            continue
        samples = row.get("samples_ns") if isinstance(row, Mapping) else None
        if isinstance(samples, list) and samples and all(type(s) is int and s > 0 for s in samples):
            return dict(row)
    return None


DEFINITIONS: Mapping[str, Json] = {
    "query": "llama-bench -pg: prompt and answer as one time, without sampling, template or text",
    "prefill_tps": "llama-bench -p: prompt tokens over the seconds of one repetition",
    "decode_tps": "llama-bench -n -d: tokens over seconds behind a prompt that was read before",
}


def facts(found: Mapping[str, Tested], read: int, written: int) -> dict[str, Field]:
    """Return the figures of its tests under the names of generation, where they mean the same."""
    prompt, decode = found["prompt"].seconds, found["decode"].seconds
    unknown = Absent("llama-bench does not say when a token came")
    return {
        "prefill_tps": rate(read * len(prompt) / float(prompt.sum()), prompt, "tokens/s", len(prompt)),
        "decode_tps": rate(written * len(decode) / float(decode.sum()), decode, "tokens/s", len(decode)),
        **dict.fromkeys(("itl_p50_s", "itl_p99_s", "token_gap_p50_s", "token_gap_p99_s"), unknown),
    }


def rows(test: Tested, samples: int) -> tuple[Queries, Window]:
    """Return its repetitions as queries, back to back up to the moment at which their line came."""
    ns = np.rint(test.seconds * 1e9).astype(np.int64)
    done = test.came_ns - ns.sum() + np.cumsum(ns)
    n = len(ns)
    known: dict[str, NDArray[Any]] = {"query_id": np.arange(n), "issued_ns": done - ns, "done_ns": done}
    usual = {"source_ns": -1, "scheduled_ns": -1, "samples": samples}
    columns = {
        k: np.asarray(known.get(k, np.full(n, usual.get(k, 0))), dtype) for k, dtype in QUERY_DTYPES.items()
    }
    return Queries(columns), Window(0, n, int(done[0] - ns[0]), int(done[-1]))


def effective(row: Mapping[str, Any], trial: Trial) -> Effective:
    """Return where and how it computed, as its row tells."""
    on_gpu = bool(row.get("n_gpu_layers")) and row.get("backends") not in ("CPU", "BLAS")
    words = (row.get("model_type", "?"), row.get("backends", "?"), f"batch {row.get('n_batch')}")
    cache = f"cache {row.get('type_k')}/{row.get('type_v')}"
    evidence = ", ".join([*map(str, words), cache, f"flash attention {row.get('flash_attn')}"])
    device = trial.device if on_gpu or trial.device == "cpu" else "cpu"
    kind = str(row.get("model_type", "unknown")).split(" ")[-1]
    return Effective(device, kind, int(row["n_threads"]) if "n_threads" in row else None, evidence)


def described(row: Mapping[str, Any]) -> dict[str, Json]:
    """Return what its row says of the program and its settings, without folders and times."""
    left_out = ("model_filename", "samples_ns", "samples_ts", "test_time")
    return {k: v for k, v in row.items() if k not in left_out and isinstance(v, str | int | float | bool)}


def _no_answer(batch: Batch) -> Sequence[NDArray[Any]]:
    raise UsageError("E-GEN-21", "llama-bench answers no prompts", fix="--backend openvino_genai")
