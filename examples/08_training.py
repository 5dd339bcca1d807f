"""Where does a training step spend its time, and how much of the loading does a worker hide?

python examples/08_training.py
"""

from dataclasses import replace

import edgescope

usual = edgescope.Trial(
    model="lenet5",
    workload="training",
    batch=16,
    workload_options={"epochs": 2, "epoch_samples": 400, "num_workers": 0},
    options={"threads": 1},
    warmup=0.0,
    min_s=30,
    max_s=30,
)
PARTS = ("fetch_s", "forward_s", "backward_s", "optimizer_s", "other_s")
print("workers", *(f"{part[:-2]:>10}" for part in PARTS), f"{'hidden':>10}")
for workers in (0, 1):
    options = {**usual.workload_options, "num_workers": workers}
    result = edgescope.run(replace(usual, workload_options=options))
    parts = (f"{result.value(part) * 1e3:7.2f} ms" for part in PARTS)
    print(f"{workers:7}", *parts, f"{result.value('loader_hidden_share'):10.0%}", result.reason or "")
