"""Training on Jetson boards (arXiv 2509.20160): its grid as trials, its takeaways as claims."""
