"""Writes a pick to a folder: its model file, run.py and a card."""
