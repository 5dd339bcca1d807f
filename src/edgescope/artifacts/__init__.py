"""From a network to the file an engine reads: ONNX, fp16, int8, mixed precision, tflite."""
