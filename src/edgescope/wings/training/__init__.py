"""Training in PyTorch: the measured loop, what holds it up, and what to change."""
