"""The parts of `edgescope anomaly`."""
