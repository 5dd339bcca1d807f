"""Memory of language models: what is predicted before the first answer, beside the peak that was measured.

    python benchmarks/generation_memory.py                    # publishes published/generation_memory.json
    python benchmarks/generation_memory.py --rows openvino_genai:llm:tiny-llama:64 --no-publish

Each row is a fresh process with one model. The weights are random but for smollm2, since their values take no room. A
prediction that is off by more than 8 % makes the exit status 1. The factors that the engines state were found with
the rows FOUND; the others show whether they hold.
"""

from __future__ import annotations

import argparse
import sys
from typing import Any

import facts

from edgescope.isolate import fresh
from edgescope.records import Measured, Result, Trial
from edgescope.records.codec import to_plain

FOUND = (
    "openvino_genai:llm:tiny-llama:128",
    "openvino_genai:llm:qwen2.5-0.5b:128",
    "torch_decoder:llm:smollm2-135m:128",
)
ROWS = (
    *FOUND,
    "openvino_genai:llm:smollm2:128",
    "openvino_genai:llm:smollm2:1024",
    "openvino_genai:llm:smollm2-135m:q4_0:128",
    "openvino_genai:llm:qwen3-0.6b:128",
    "torch_decoder:llm:tiny-qwen3:128",
    "torch_decoder:llm:smollm2:1024",
    "torch_decoder:llm:qwen2.5-0.5b:128",
)
"""Engine, model and tokens of the prompt."""
OUTPUT, MOST = 8, 0.08
KEPT = ("memory_predicted_bytes", "peak_rss_bytes", "context_fits_tokens", "closed_rss_bytes")


def trial_of(row: str) -> Trial:
    """Return the trial of a row: one thread, since threads take no room and must not spin."""
    backend, _, rest = row.partition(":")
    model, _, prompt = rest.rpartition(":")
    return Trial(
        model=model,
        backend=backend,
        device="cpu",
        precision="as_is",
        workload="generate",
        workload_options={"prompt_tokens": int(prompt), "output_tokens": OUTPUT},
        options={"threads": 1},
        max_queries=2,
    )


def told(row: str, result: Result) -> dict[str, Any]:
    """Return a row's figures, and by how much the prediction is off."""
    found = {name: result.metrics.get(name) for name in KEPT}
    predicted, peak = (found[name] for name in KEPT[:2])
    off = None
    if isinstance(predicted, Measured) and isinstance(peak, Measured):
        off = predicted.value / peak.value - 1
    said = {name: None if field is None else to_plain(field) for name, field in found.items()}
    return {
        "row": row,
        "calibrated_with": row in FOUND,
        "off": off,
        "reason": str(result.reason or ""),
        **said,
    }


def main(argv: list[str]) -> int:
    """Measure every row and write the page."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--rows", nargs="+", default=ROWS)
    parser.add_argument("--no-publish", action="store_true")
    args = parser.parse_args(argv)
    found = []
    for row in args.rows:
        found.append(told(row, fresh.look(trial_of(row))))
        print(found[-1], flush=True)
    met = all(row["off"] is not None and abs(row["off"]) <= MOST for row in found)
    if not args.no_publish:
        facts.publish("generation_memory", {"most": MOST, "rows": found}, met=met)
    return 0 if met else 1


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
