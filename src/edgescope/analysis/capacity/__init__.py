"""How many clients a machine can serve, and what stops more."""
