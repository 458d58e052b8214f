"""The agent worker: admits prompts and takes each rollout from turn to turn."""
