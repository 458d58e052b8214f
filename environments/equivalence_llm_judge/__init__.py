"""Short answers that a judge compares with a gold answer."""
