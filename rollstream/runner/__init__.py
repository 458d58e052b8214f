"""Workers as processes, and the one-process run. Read `run` for the order of things."""
