"""RULER: finding and tracking facts in long contexts."""
