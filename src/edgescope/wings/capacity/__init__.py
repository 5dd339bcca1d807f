"""Find how many clients a machine can serve, and the limit that keeps one more out."""
