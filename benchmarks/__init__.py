"""CPU per rollout, against a bare loop in the same run: `python -m benchmarks`."""
