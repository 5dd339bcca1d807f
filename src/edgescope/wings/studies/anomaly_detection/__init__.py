"""A study of a whole system of video anomaly detection on three Jetson boards."""
