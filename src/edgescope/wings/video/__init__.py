"""Video as it runs: decode, prepare, infer, draw the conclusions, and watch for days."""
