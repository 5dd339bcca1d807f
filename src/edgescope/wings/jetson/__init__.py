"""NVIDIA Jetson: rails, clocks, temperatures, throttling, power modes."""
