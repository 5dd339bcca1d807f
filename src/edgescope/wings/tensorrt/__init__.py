"""TensorRT through its Python binding."""
