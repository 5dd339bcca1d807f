"""Which stage of a pipeline is the bottleneck, and what would its removal gain?

A pipeline reads frames and converts each of them value by value in Python before the network sees it. `explain` names
that stage; with the loop replaced by whole arrays the pipeline gains about what was predicted.

    python examples/05_find_a_bottleneck.py
"""

import os
import tempfile
from pathlib import Path

import edgescope

STAGES = """
import numpy as np

def slow(item):
    for frame in item.frames:
        item.notes["grey"] = [[(3 * r + 6 * g + b) // 10 for r, g, b in row] for row in frame.pixels.tolist()]

def quick(item):
    for frame in item.frames:
        item.notes["grey"] = frame.pixels @ np.array([3, 6, 1], dtype=np.uint16) // 10
"""
PIPELINE = """
source = "synthetic:240x180"
[[stage]]
name = "decode"
[[stage]]
name = "convert"
call = "my_stages:{call}"
[[stage]]
name = "preprocess"
[[stage]]
name = "infer"
[[stage]]
name = "postprocess"
"""


def measured(call):
    """Return the result of the pipeline with one of the two stages."""
    Path(f"{call}.toml").write_text(PIPELINE.format(call=call))
    trial = edgescope.Trial(
        model="squeezenet1_1",
        backend="onnxruntime",
        workload="video",
        workload_options={"pipeline": f"{call}.toml"},
        options={"threads": 1},
        min_s=1.0,
        max_s=1.0,
    )
    return edgescope.run(trial, store="results")


os.chdir(tempfile.mkdtemp())
Path("my_stages.py").write_text(STAGES)

result = measured("slow")
found = edgescope.explain(result, store="results")
print(found)

before, after = (r.value("throughput_sps") for r in (result, measured("quick")))
print(f"without the loop: {after / before:.2f} times as fast")
