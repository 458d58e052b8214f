"""A list that tools change."""
