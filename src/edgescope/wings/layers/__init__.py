"""The time, FLOPs, bytes and share of the roofline of each layer."""
