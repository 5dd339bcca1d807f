"""Many results: replicates become one row, rows are compared and one is recommended."""
