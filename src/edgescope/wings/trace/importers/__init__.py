"""Files of other profilers, read into one table of spans: a file a format (base.py says what each gives)."""
