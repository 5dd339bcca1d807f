"""Results on disk: whole files, one writer per cell, and damaged files are never trusted."""
