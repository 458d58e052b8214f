"""Reading rules that several environments share."""
