"""What a pick leaves behind: a folder with its file, run.py and a card."""
