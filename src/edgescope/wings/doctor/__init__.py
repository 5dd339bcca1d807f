"""Reports what can be measured here, what would disturb a measurement, and what would unlock more."""
