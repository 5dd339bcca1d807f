"""The kernel-level account of a trace: what a query's time went to, on the host and on the GPU."""
