"""A plug-in of edgescope: what its entry points name. Neither the engine nor numpy is imported here."""

from edgescope.registry import Entry

BACKEND = Entry(
    "edgescope_example.reference:OnnxReference",
    "pip install onnx",
    "ONNX's own reference, numpy alone: slow",
    ("cpu", "simulated"),
    about="edgescope_example.about:AboutReference",
)
PLACE = Entry("edgescope_example.places:SIMULATED", summary="a made-up accelerator")
DEVICE = Entry("edgescope_example.loadavg:Loadavg", summary="the kernel's load averages")
METRIC = Entry("edgescope_example.tail:METRIC", summary="the upper quartile of the latency")
VERB = Entry(
    "edgescope_example.tail",
    summary="print how far the slow queries of each stored result lie from its median",
    functions=("edgescope_example.tail:tail",),
)
