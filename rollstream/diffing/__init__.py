"""Two scorings of the same rollouts, compared line by line (platform.md C5)."""
