"""The four workers and what they share: `runtime` (the consuming core) and `models` (clients of model endpoints)."""
