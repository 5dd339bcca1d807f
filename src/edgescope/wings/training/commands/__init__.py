"""The parts of `edgescope train`."""
