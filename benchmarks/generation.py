"""Language models with a published one's shape in edgescope's decoder: tokens a second, and what the machine allows.

    python benchmarks/generation.py                      # on a GPU, in bf16; publishes published/generation.json
    python benchmarks/generation.py --device cpu --precision fp32 --models llm:tiny-llama --no-publish

The weights are random, so nothing is said of answers but that they are those of fp32. MBU is the share of the memory
bandwidth that decoding takes, MFU the share of the FLOP/s that a prompt takes; both ceilings are measured on the same
machine just before, by `edgescope doctor --roofline`. A share above 1 cannot be; then the exit status is 1.
"""

from __future__ import annotations

import argparse
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import facts

import edgescope
from edgescope.models import zoo
from edgescope.records import Absent, Field, Result, Trial
from edgescope.records.codec import to_plain

MODELS = ("llm:qwen3-0.6b", "llm:llama-3.2-1b")
PROMPTS, OUTPUT, SECONDS = (128, 1024), 128, 10.0
KEPT = ("ttft_p50_s", "itl_p50_s", "decode_tps", "prefill_tps", "output_tps", "prefill_s", "mbu", "mfu")
KEPT += ("memory_predicted_bytes", "peak_rss_bytes")
KEPT += ("power_w", "cores_used")  # a GPU far below its limit beside one busy core waits for that core


def ceilings(store: Path, device: str) -> None:
    """Measure what the machine can do, and keep it in the store, where each result finds it."""
    command = [sys.executable, "-m", "edgescope", "doctor", "--roofline", device, "--store", str(store)]
    subprocess.run(command, check=True, stdout=sys.stderr)


def rows(
    trial: Trial, models: tuple[str, ...], prompts: tuple[int, ...], store: Path
) -> Iterator[dict[str, Any]]:
    """Yield what each model did with prompts of each length, beside its ceilings."""
    ceilings(store, trial.device)
    for model in models:
        for prompt in prompts:
            options = {"prompt_tokens": prompt, "output_tokens": OUTPUT}
            asked = replace(trial, model=model, workload_options=options)
            yield told(edgescope.run(asked, store=store), prompt)


def told(result: Result, prompt: int) -> dict[str, Any]:
    """Return a result's figures with the shares of what the machine can do."""
    trial = result.trial
    row: dict[str, Any] = {"model": zoo.bare(trial.model), "prompt_tokens": prompt, "output_tokens": OUTPUT}
    row |= {"status": result.status.value, "engine": to_plain(result.effective)}
    if result.reason:
        return row | {"reason": str(result.reason)}
    found: dict[str, Field] = {name: result.metrics.get(name, Absent("not measured")) for name in KEPT}
    shape = zoo.get(zoo.bare(trial.model)).architecture
    judged = result.verification.detail if result.verification else "not judged"
    verdict = [result.verdict.trust.value, *result.verdict.evidence] if result.verdict else ["none"]
    plain = {name: to_plain(field) for name, field in found.items()}
    return row | {"params": shape.params, "gate": judged, "verdict": verdict, "figures": plain}


def main(argv: list[str]) -> int:
    """Measure every row and write the page."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--device", default="cuda")
    parser.add_argument("--precision", default="bf16", choices=("fp32", "bf16", "fp16"))
    parser.add_argument("--models", nargs="+", default=MODELS)
    parser.add_argument("--prompts", nargs="+", type=int, default=PROMPTS)
    parser.add_argument("--no-publish", action="store_true")
    args = parser.parse_args(argv)
    trial = Trial(
        model=args.models[0],
        backend="torch_decoder",
        device=args.device,
        precision=args.precision,
        workload="generate",
        min_s=SECONDS,
        max_s=SECONDS,
    )
    found = []
    with tempfile.TemporaryDirectory() as store:
        for row in rows(trial, tuple(args.models), tuple(args.prompts), Path(store)):
            print(row, flush=True)
            found.append(row)
    kept = all(
        isinstance(row.get("figures"), dict)
        and "value" in row["figures"]["mbu"]
        and "value" in row["figures"]["mfu"]
        for row in found
    )
    if not args.no_publish:
        facts.publish(Path(__file__).stem, {"precision": args.precision, "rows": found}, met=kept)
    return 0 if kept else 1


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
