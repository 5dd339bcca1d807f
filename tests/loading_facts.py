"""A training step on a small machine whose loading takes twice as long as its computing, and nothing overlaps."""

from edgescope.wings.training.prediction import Facts

WAITS = Facts(
    samples=8,
    device=0.02,
    device_cpu=0.02,
    work={"read": 0.03, "decode": 0.01},
    loader_cpu=0.01,
    from_disk=0.0,
    workers=0,
    persistent=False,
    prefetch=2,
    cores=2,
    step=0.06,
    steps=10,
    start=0.1,
)
