"""Sibling answers compared pairwise by a generative reward model."""
