"""The public functions: one call a verb, an answer that prints itself. The command line parses for them and prints."""
