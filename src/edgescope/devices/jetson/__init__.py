"""NVIDIA Jetson: rails, clocks, heat, throttling, power modes."""
