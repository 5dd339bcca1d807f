"""Energy by every meter: what a result has, and the log of an external one."""
