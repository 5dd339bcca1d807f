"""Published studies: their figures as data, their tables and claims on our results."""
