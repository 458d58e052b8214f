"""A counter per rollout that the policy must bring to a target."""
