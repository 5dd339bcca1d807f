"""Predict time, power and energy of power modes from a few that were measured."""
