"""Metrics of one result, from its rows and readings."""
