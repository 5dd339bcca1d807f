"""Which Trial next: candidates, successive halving, Bayesian search, capacity."""
