"""How detectors' outputs become boxes: one decoder per family of detectors, and the suppression that they share."""
