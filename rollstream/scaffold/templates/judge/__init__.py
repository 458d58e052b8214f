"""Texts that a judge compares with a reference."""
