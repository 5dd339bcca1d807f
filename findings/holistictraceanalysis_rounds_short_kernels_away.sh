#!/usr/bin/env bash
# HolisticTraceAnalysis, as installed, reports half of the time of short kernels
#
# Software: HolisticTraceAnalysis 0.5.0 with pandas 3.1.1 and numpy 2.4.6 (python3 3.11 or newer).
# What one expects: the sums of get_gpu_kernel_breakdown() and get_temporal_breakdown() are those of the durations in
#   the trace. torch.profiler writes starts and durations in microseconds with three decimals, so nanoseconds.
# What happens: unless the variable HTA_DISABLE_NS_ROUNDING is set, each start is rounded up and each end down to a
#   whole microsecond before anything is computed. A kernel of 1.9 microseconds counts 1 or 2, never more than it
#   took; the gaps between kernels grow by what the kernels lost.
# Why it matters: eager inference of small networks runs kernels of one to three microseconds. Half of their time goes
#   over to "idle", and the conclusion "the GPU waits for the host" looks stronger than it is. A comparison of two
#   traces changes with the length of their kernels alone. Nothing that is printed says so.
# Seen: 2026-11-28, an x86_64 virtual machine, 1,000 kernels of 1.2 to 2.7 microseconds:
#       the trace holds 1950 us of kernels
#       as installed:                  953 us of kernels, 19029 us idle
#       HTA_DISABLE_NS_ROUNDING=1:    1950 us of kernels, 18033 us idle
# What to do: set HTA_DISABLE_NS_ROUNDING=1.
# In edgescope: times stay whole nanoseconds (tests/wings/trace/test_kineto_numbers.py); docs/how-to/profiling.md.
set -euo pipefail
folder=$(mktemp -d); trap 'rm -rf "$folder"' EXIT
{ python3 -m venv "$folder/venv" && "$folder/venv/bin/pip" install -q HolisticTraceAnalysis==0.5.0 pandas==3.1.1 \
    numpy==2.4.6; } >&2 || exit 2
cat > "$folder/see.py" <<'PY'
import json
import logging
import sys

logging.disable(logging.CRITICAL)
from hta.trace_analysis import TraceAnalysis


def us(ns):
    return f"{ns // 1000}.{ns % 1000:03}"


events, length_ns = [], 0
for i in range(1000):
    start, length = 20_000 * i + 137 * i % 1000, 1_200 + 271 * i % 1_500
    length_ns += length
    host = {"ph": "X", "cat": "cuda_runtime", "name": "cudaLaunchKernel", "pid": 10, "tid": 10}
    kernel = {"ph": "X", "cat": "kernel", "name": "relu", "pid": 0, "tid": 7}
    for one, at, took in ((host, start, 4_000), (kernel, start + 9_000, length)):
        args = {"correlation": i + 1} | ({"stream": 7, "device": 0} if one is kernel else {})
        events.append(json.dumps(one | {"args": args})[:-1] + f', "ts": {us(at)}, "dur": {us(took)}}}')
path = sys.argv[1] + "/trace.json"
with open(path, "w") as file:
    file.write('{"schemaVersion": 1, "distributedInfo": {"rank": 0}, "traceEvents": [' + ",\n".join(events) + "]}")
analysis = TraceAnalysis(trace_files={0: path}, trace_dir="")
_, kernels = analysis.get_gpu_kernel_breakdown(visualize=False, num_kernels=10)
times = analysis.get_temporal_breakdown(visualize=False)
print(round(length_ns / 1000), round(kernels["sum (us)"].sum()), round(times["idle_time(us)"].sum()))
PY
see() { "$folder/venv/bin/python" "$folder/see.py" "$folder" 2>/dev/null | tail -1; }
unset HTA_DISABLE_NS_ROUNDING
read -r true rounded idle <<< "$(see)"
read -r _ exact least <<< "$(HTA_DISABLE_NS_ROUNDING=1 see)"
echo "the trace holds $true us of kernels"
echo "as installed: $rounded us of kernels, $idle us idle"
echo "HTA_DISABLE_NS_ROUNDING=1: $exact us of kernels, $least us idle"
[ "$exact" -eq "$true" ] && [ "$rounded" -lt $((true * 3 / 4)) ]
