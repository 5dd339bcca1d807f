"""MLPerf's own load generator drives the scenarios called mlperf_*, and its log is read back."""
