"""Any Linux CPU."""
