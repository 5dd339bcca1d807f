"""TensorRT through its own program, trtexec."""
