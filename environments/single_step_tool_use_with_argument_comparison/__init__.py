"""One step of an expert: the same tool call, the same calls side by side, or a message."""
