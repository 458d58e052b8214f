"""Replies that are compared with each other."""
