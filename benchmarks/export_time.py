"""How long the export of a network to ONNX takes: layers that overwrite their input, and collecting garbage.

Three ways, each in fresh processes that take turns: `in_place` as the network is, `out_of_place` with the layers as
edgescope exports them, and `seldom` with garbage collected as seldom as in edgescope's processes that build. The files
must hold the same operators. Target: out of place is faster than in place for a network with ReLU6, and no slower for
one with ReLU.

    python benchmarks/export_time.py [--rounds 6]     12 minutes
"""

from __future__ import annotations

import argparse
import contextlib
import gc
import json
import random
import subprocess
import sys
import tempfile
import time
from collections import Counter, defaultdict
from itertools import pairwise
from pathlib import Path
from typing import Any
from unittest import mock

from facts import publish

from edgescope.stats import paired_log_ratio

WAYS = ("in_place", "out_of_place", "seldom")
NETWORKS = {"efficientnet_lite0": "ReLU6", "mobilenet_v2": "ReLU6", "resnet50": "ReLU"}


def once(name: str, way: str) -> dict[str, Any]:
    """Return the seconds that one export takes, and how often each operator is in the file."""
    import onnx

    from edgescope.artifacts import onnx_export_torch as exporter
    from edgescope.bench.child import SELDOM
    from edgescope.models import zoo

    model = zoo.get(name)
    net = exporter.Net(model.module().eval(), model.inputs)
    if way == "seldom":
        gc.set_threshold(*SELDOM)
    as_it_is = mock.patch.object(exporter, "_out_of_place", lambda net: contextlib.nullcontext())
    with tempfile.TemporaryDirectory() as folder, as_it_is if way == "in_place" else contextlib.nullcontext():
        path, begun = Path(folder) / "net.onnx", time.perf_counter()
        exporter._write(net, path, exporter.OPSET)
        seconds = time.perf_counter() - begun
        return {"seconds": seconds, "operators": Counter(n.op_type for n in onnx.load(path).graph.node)}


def measured(name: str, rounds: int) -> dict[str, Any]:
    """Return the seconds of each way, in a drawn order in each round, and the ratios of one way to the next."""
    found: dict[str, list[float]] = defaultdict(list)
    operators = []
    for number in range(rounds):
        for way in random.Random(number).sample(WAYS, len(WAYS)):
            command = [sys.executable, __file__, "--once", name, way]
            told = json.loads(
                subprocess.run(command, check=True, capture_output=True).stdout.splitlines()[-1]
            )
            found[way].append(told["seconds"])
            operators.append(told["operators"])
    ratios = {}
    for slow, fast in pairwise(WAYS):
        ratio = paired_log_ratio(found[slow], found[fast])
        ratios[f"{slow}_over_{fast}"] = {"value": ratio.value, "lo": ratio.lo, "hi": ratio.hi}
    alike = all(each == operators[0] for each in operators)
    return {"activation": NETWORKS[name], "same_operators": alike, "seconds": dict(found), **ratios}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--rounds", type=int, default=6)
    parser.add_argument("--once", nargs=2, metavar=("NETWORK", "WAY"), help=argparse.SUPPRESS)
    args = parser.parse_args()
    if args.once:
        print(json.dumps(once(*args.once)))
        return
    figures = {name: measured(name, args.rounds) for name in NETWORKS}
    gained = [(f["activation"], f["in_place_over_out_of_place"]) for f in figures.values()]
    faster = all(ratio["lo"] > 1 for kind, ratio in gained if kind == "ReLU6")
    no_slower = all(ratio["hi"] >= 1 for kind, ratio in gained if kind == "ReLU")
    publish(
        "export_time",
        figures,
        met=faster and no_slower and all(f["same_operators"] for f in figures.values()),
    )


if __name__ == "__main__":
    main()
