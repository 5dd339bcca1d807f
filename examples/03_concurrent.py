"""What does a second process of a model add in total, and what does it cost each query?

python examples/03_concurrent.py
"""

from dataclasses import replace

import edgescope


def shown(result: edgescope.Result, name: str, scale: float = 1.0) -> str:
    """Return a number of the result; n/a where it was not measured, result.metrics[name].reason says why."""
    value = result.metrics.get(name)
    return f"{value.value * scale:.1f}" if isinstance(value, edgescope.Measured) else "n/a"


one = edgescope.Trial(
    model="squeezenet1_1", backend="onnxruntime", options={"threads": 1}, warmup=0.3, min_s=2, max_s=2
)
print(f"{'processes':>9} {'total/s':>9} {'T/P per s':>9} {'p99 ms':>9}")
for processes in (1, 2):
    trial = replace(one, processes=processes)
    result = edgescope.run(trial)
    each = "throughput_per_process_sps" if trial.multi_process else "throughput_sps"
    row = (shown(result, "throughput_sps"), shown(result, each), shown(result, "latency_p99_s", 1e3))
    print(f"{processes:9}", *(f"{figure:>9}" for figure in row), result.reason or "")
