"""The smallest environment with a tool: every rollout scores 1.0."""
