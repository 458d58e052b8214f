"""The verifier worker: scores finished trajectories."""
