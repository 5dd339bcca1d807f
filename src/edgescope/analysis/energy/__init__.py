"""Energy of a window from sensor readings."""
