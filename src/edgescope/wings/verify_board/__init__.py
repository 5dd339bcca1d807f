"""The first-board kit: what this project says of boards and engines, checked on a real one; one file to send."""
