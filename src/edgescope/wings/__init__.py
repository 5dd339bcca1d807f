"""Capabilities that can be taken out: a folder or a file each, with its verb, commands, page, plot and models.

A wing imports the core, and of another wing only its commands and what it adds to Python. The core imports no wing: the
registry names them, and each costs its own verb where it is missing.
"""
