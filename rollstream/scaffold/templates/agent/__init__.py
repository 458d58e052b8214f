"""Answers that the policy revises after its own criticism."""
