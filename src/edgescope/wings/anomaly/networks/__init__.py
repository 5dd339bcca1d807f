"""Networks of video anomaly detection: features of snippets, and heads that score them."""
