"""Networks for pictures: classifiers and detectors, their photographs, a folder of the user's own."""
