"""Judge a change: PASS, FAIL or INCONCLUSIVE on each limit, for a pipeline that must stop or go on."""
