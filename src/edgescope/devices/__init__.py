"""Devices: what a machine is, what its sensors say, whether its clocks held."""
