"""Where the time goes: profilers, the files of others, and what limits the program that they saw."""
