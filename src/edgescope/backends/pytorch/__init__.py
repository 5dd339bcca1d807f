"""PyTorch as an engine: eager, compiled, through Torch-TensorRT."""
