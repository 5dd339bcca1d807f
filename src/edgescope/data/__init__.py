"""The user's own inputs and labels: where they lie, how they are prepared, which of them calibrate and which judge."""
