"""Texts that are compared word by word."""
