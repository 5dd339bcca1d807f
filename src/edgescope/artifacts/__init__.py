"""From a network to the file an engine reads: ONNX, fp16, int8, mixed precision, tflite."""

REDUCED_SHARE = 0.75
"""Share of the heavy operators that must run in a reduced precision for the whole to carry its name."""
