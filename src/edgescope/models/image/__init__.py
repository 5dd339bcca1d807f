"""Networks for images: classifiers and detectors, their photographs, and a folder of the user's own."""
