"""Concurrent inference on edge GPUs: precision, batch and processes."""
