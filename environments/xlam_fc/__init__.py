"""Single-step function calling: the right calls with the right arguments."""
