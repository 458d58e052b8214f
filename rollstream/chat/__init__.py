"""Talking to an agent at a terminal: one rollout at a time, each step as it happens, without Kafka."""
