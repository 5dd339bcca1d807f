"""A plug-in of edgescope: what its two entry points name. Neither the engine nor numpy is imported here."""

from edgescope.registry import Entry

BACKEND = Entry(
    "edgescope_example.reference:OnnxReference",
    "pip install onnx",
    "ONNX's own reference, numpy alone: slow",
    about="edgescope_example.about:AboutReference",
)
DEVICE = Entry("edgescope_example.loadavg:Loadavg", summary="the kernel's load averages")
