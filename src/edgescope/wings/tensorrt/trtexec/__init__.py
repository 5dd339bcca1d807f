"""TensorRT through NVIDIA's program trtexec."""
