"""Flags or a study file become Trials; every mistake is told with its line."""
