"""Scoring stored rollouts again (platform.md C1-C5): from result files, and from the log."""
