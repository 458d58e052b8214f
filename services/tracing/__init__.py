"""OpenTelemetry traces: what becomes of a rollout, as spans under its trace id. Nothing of it runs unless a setting asks."""
