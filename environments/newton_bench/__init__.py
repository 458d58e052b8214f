"""Discovery of altered physical laws by experiments."""
