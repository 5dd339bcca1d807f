"""LiteRT, which was TensorFlow Lite."""
