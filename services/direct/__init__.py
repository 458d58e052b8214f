"""Rollouts in one process, call by call: what the workers do, without Kafka and so without its guarantees."""
