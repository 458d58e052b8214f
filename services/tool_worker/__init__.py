"""The tool worker: runs the policy's calls, in order, and lets environments move."""
