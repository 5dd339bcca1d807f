"""One result: its rows and readings become metrics."""
