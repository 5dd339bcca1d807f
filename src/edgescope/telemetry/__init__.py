"""Telemetry: sensor readings taken during a run by a separate process, and the verdict on them."""
