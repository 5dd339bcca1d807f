"""Telemetry: readings taken beside a run, in a process of their own, and the verdict on them."""
