"""Agents: state machines that decide what a rollout does next. See `agent` for the interface."""
