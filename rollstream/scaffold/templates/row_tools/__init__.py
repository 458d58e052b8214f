"""Calls of tools that the rows bring."""
