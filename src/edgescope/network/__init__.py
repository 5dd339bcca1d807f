"""Measuring a network: an echo server for the far end, and a probe that times messages and transfers against it."""
