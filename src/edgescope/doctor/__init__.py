"""What can be measured here, what disturbs, and what would unlock more."""
