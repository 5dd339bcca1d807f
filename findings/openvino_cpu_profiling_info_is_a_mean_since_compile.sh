#!/usr/bin/env bash
# OpenVINO's time of a layer is a mean over everything since the model was compiled
#
# Software: OpenVINO 2026.4.1, CPU plugin, Python API (python3 3.10 or newer, x86_64 or aarch64).
# What one expects: after an inference, `InferRequest.get_profiling_info()` tells how long each node ran in that
#   inference. The documentation of ProfilingInfo.real_time calls it the time "that the node ran (in total)".
# What happens: real_time is the mean over all inferences of that compiled model so far, over all of its requests. A
#   new request begins with the mean of the others' inferences. One cold, slow or large inference stays in every later
#   reading; the median over many readings does not take it out, for each reading holds it.
# Why it matters: per-layer tables and rooflines made by reading after each inference rank layers by how cold their
#   first run was. With an open shape the figure of a small input is that of a large one that came before.
# Seen: 2026-11-27, two busy cores of an x86_64 virtual machine, ten small inferences after a large one. Figures
#   vary, the conclusion does not:
#       small input: the last inference alone 0.18 ms; get_profiling_info() says 51.37 ms
# What to do: read after w inferences and after n; an inference between took (n * late - w * early) / (n - w).
# In edgescope: wings/openvino/backend.py reads twice and unrolls.
set -euo pipefail
folder=$(mktemp -d); trap 'rm -rf "$folder"' EXIT
{ python3 -m venv "$folder/venv" && "$folder/venv/bin/pip" install -q openvino==2026.4.1 numpy==2.4.6; } >&2 || exit 2
"$folder/venv/bin/python" - <<'PY'
import sys

import numpy as np
import openvino as ov
from openvino import opset13 as op

x = op.parameter([1, 3, -1, -1], np.float32, name="x")
weights = op.constant(np.ones((32, 3, 3, 3), np.float32))
net = ov.Model([op.convolution(x, weights, [1, 1], [1, 1], [1, 1], [1, 1])], [x], "net")
compiled = ov.Core().compile_model(net, "CPU", {"PERF_COUNT": True, "INFERENCE_PRECISION_HINT": "f32"})

def told(request):
    """The counter of the convolution, in ms."""
    nodes = [n for n in request.get_profiling_info() if n.node_type == "Convolution"]
    return max(n.real_time.total_seconds() for n in nodes) * 1e3

def infer(request, side):
    request.infer({0: np.ones((1, 3, side, side), np.float32)})
    return told(request)

one = compiled.create_infer_request()
large = infer(one, 1024)
early = [infer(one, 64) for _ in range(9)][-1]
late = infer(one, 64)
alone = 11 * late - 10 * early
print(f"large input, first inference: {large:.2f} ms")
print(f"small input: the last inference alone {alone:.2f} ms; get_profiling_info() says {late:.2f} ms")
other = compiled.create_infer_request()
new = infer(other, 64)
print(f"first inference of a new request, small input: {new:.2f} ms")
as_described = late > 5 * max(alone, 0.0) and new > late / 2
print("as described" if as_described else "changed: the counter is of one inference now")
sys.exit(0 if as_described else 1)
PY
