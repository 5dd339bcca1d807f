"""ONNX Runtime as an engine: CPU, CUDA and TensorRT providers."""
