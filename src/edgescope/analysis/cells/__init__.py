"""Join replicates into rows, compare rows, and recommend one of them."""
