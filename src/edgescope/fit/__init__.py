"""Fitting a network: what is trained, one step of it, and runs of many epochs."""
