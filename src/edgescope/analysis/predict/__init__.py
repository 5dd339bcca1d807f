"""What has not been measured, from what has: regression, queueing, roofline."""
