"""OpenVINO GenAI through edgescope against a bare loop of its own API: the cost of measuring, in tokens per second.

    python benchmarks/generation_parity.py               # publishes published/generation_parity.json
    python benchmarks/generation_parity.py --pairs 4 --model llm:tiny-llama --no-publish

One process holds the model twice, with one thread each: in edgescope's workload, as the load generator drives it, and
in a pipeline that a loop of four lines drives. They answer requests of the same lengths in turns, each pair in random
order. The ratio of the tokens per second has an interval over the pairs; it must reach 0.99, and the interval must be
narrow enough to tell (5 %). On a machine that others use it is not; there the ratio of the CPU seconds a token, which
other programs hardly change, stands beside it.
"""

from __future__ import annotations

import argparse
import random
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager

import facts
import numpy as np
import openvino as ov
import openvino_genai as genai

from edgescope.bench.parts import open_work, prepare_trial
from edgescope.models import zoo
from edgescope.records import Trial
from edgescope.stats.pairs import paired_log_ratio

PROMPT, OUTPUT, THREADS, LEAST, WIDEST = 32, 32, 1, 0.99, 1.05
Turn = Callable[[int], None]


@contextmanager
def through_edgescope(model: str) -> Iterator[Turn]:
    """Yield a function that answers request n as the load generator asks it."""
    trial = Trial(
        model=model,
        backend="openvino_genai",
        workload="generate",
        workload_options={"prompt_tokens": PROMPT, "output_tokens": OUTPUT},
        options={"threads": THREADS},
        precision="as_is",
    )
    prepare_trial(trial)
    said: list[int] = []

    def done(number: int, status: int, *_: object) -> None:
        said.append(status)

    with open_work(trial) as opened:
        yield lambda number: opened.work.issue(number, 1, done)
    if any(said):
        raise SystemExit(f"{sum(map(bool, said))} requests failed: {opened.failure()}")


def bare(model: str) -> Turn:
    """Return a function that answers request n with as little as the API allows."""
    scheduler = genai.SchedulerConfig()
    scheduler.max_num_batched_tokens = 1 << 20
    scheduler.enable_prefix_caching = False
    settings = {"INFERENCE_NUM_THREADS": THREADS}
    pipeline = genai.ContinuousBatchingPipeline(str(zoo.get(model).path), scheduler, "CPU", settings)
    config = genai.GenerationConfig()
    config.max_new_tokens = config.min_new_tokens = OUTPUT
    config.ignore_eos, config.do_sample, config.apply_chat_template = True, False, False

    def turn(number: int) -> None:
        tokens = np.random.default_rng(number).integers(5, 400, (1, PROMPT))
        handle = pipeline.add_request(number, ov.Tensor(tokens), config)
        got = 0
        while got < OUTPUT:
            pipeline.step()
            while handle.can_read():
                got += sum(len(part.generated_ids) for part in handle.read().values())

    return turn


def rate(turn: Turn, number: int) -> tuple[float, float]:
    """Return the tokens per second of one request, and per second of CPU time."""
    start, used = time.perf_counter(), time.process_time()
    turn(number)
    return OUTPUT / (time.perf_counter() - start), OUTPUT / (time.process_time() - used)


def said(mine: list[tuple[float, float]], theirs: list[tuple[float, float]], which: int) -> dict[str, float]:
    """Return edgescope's rate over the bare loop's, with its interval."""
    ratio = paired_log_ratio([r[which] for r in mine], [r[which] for r in theirs])
    return {"value": ratio.value, "lo": ratio.lo, "hi": ratio.hi, "pairs": ratio.n}


def main(argv: list[str]) -> int:
    """Let both take turns and write the page."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--model", default="llm:smollm2")
    parser.add_argument("--pairs", type=int, default=30)
    parser.add_argument("--no-publish", action="store_true")
    args = parser.parse_args(argv)
    rng = random.Random(0)
    rates: tuple[list[tuple[float, float]], list[tuple[float, float]]] = ([], [])
    with through_edgescope(args.model) as mine:
        arms = (mine, bare(args.model))
        for number in range(-1, args.pairs):
            for side in rng.sample((0, 1), 2):
                found = rate(arms[side], number + 2)
                rates[side].extend([found] if number >= 0 else [])  # the first of each warms up
            print(number, *(r[-1] for r in rates if r), flush=True)
    ratio, cpu = (said(*rates, which) for which in (0, 1))
    figures = {
        "model": args.model,
        "prompt_tokens": PROMPT,
        "output_tokens": OUTPUT,
        "threads": THREADS,
        "tokens_per_s_and_per_cpu_s": {"edgescope": rates[0], "bare": rates[1]},
        "ratio": ratio,
        "ratio_of_cpu_time": cpu,
    }
    met = ratio["value"] >= LEAST and ratio["hi"] / ratio["lo"] <= WIDEST
    print(ratio, cpu)
    if not args.no_publish:
        facts.publish("generation_parity", figures, met=met)
    return 0 if met else 1


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
