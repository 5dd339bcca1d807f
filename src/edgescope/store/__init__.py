"""Results on disk: whole files, one writer a cell, nothing that was damaged trusted."""
