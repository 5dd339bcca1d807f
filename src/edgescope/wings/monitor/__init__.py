"""A live view of one machine: its sensors, the trial that runs on it, and the view's own cost."""
