"""The gate: are these the answers of the fp32 network."""
