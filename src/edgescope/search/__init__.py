"""Choose the next Trial to run: candidates, successive halving, Bayesian search, capacity."""
