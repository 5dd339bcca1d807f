"""A place to compute: a made-up accelerator with memory of its own, behind which the host's cores stand."""

from edgescope.records import Place

SIMULATED = Place(
    "simulated",
    "simulated accelerator",
    own_memory=True,
    unseen_by=("gpu_board",),
    names={"torch": "cpu"},
)
