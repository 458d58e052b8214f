"""Answers that are compared with an expected one."""
