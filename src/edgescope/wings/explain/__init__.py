"""What limits a run, with the evidence: causes, the interventions that confirm or refute them, and their remedies."""
