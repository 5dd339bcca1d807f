"""Models of the user's own: files and factories."""
