"""Optimising vision models for a Jetson Nano."""
