"""edgescope."""
