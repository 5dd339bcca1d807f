"""Reversible resource settings: power modes, clocks, CPU affinity, quotas; entered, verified and restored."""
