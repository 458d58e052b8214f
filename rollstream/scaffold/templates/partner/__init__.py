"""A number to be guessed."""
