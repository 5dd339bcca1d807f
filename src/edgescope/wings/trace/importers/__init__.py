"""Files of other profilers, read into one table of spans: a file a format; imported.py says what each gives."""
