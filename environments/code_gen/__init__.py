"""Competitive programming in Python, scored by running the program against hidden tests."""
