"""Choose one of the measured cells."""
