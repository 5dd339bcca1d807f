"""Energy of a window from what sensors told."""
