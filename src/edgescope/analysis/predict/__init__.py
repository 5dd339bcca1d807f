"""Predictions from measurements: regression, queueing, roofline."""
