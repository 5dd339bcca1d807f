"""Files of other profilers, read into one table of spans: a file a format; edgescope.tracing says what each gives."""
