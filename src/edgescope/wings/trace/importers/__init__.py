"""Files of other profilers, read into one table of spans: a file a format; tracing/importer.py says what each gives."""
