"""Several tool calls in order: look up a number for each synonym of a term, then submit the numbers."""
