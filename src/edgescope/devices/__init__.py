"""Devices: a machine's facts, its sensors, and whether its clocks held."""
