"""Video anomaly detection: features of videos, weakly supervised training, scores, and sets of videos."""
