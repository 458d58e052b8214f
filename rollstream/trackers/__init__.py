"""Metrics of a run to where people watch them (platform.md B14): Weights & Biases and MLflow.

    notes = await export(settings.trackers, aggregated.agents, paths.results)

Invariant: a tracker that is not there, refuses, or hangs costs a note and never the run; its library is imported by a process
of its own, which is killed at the deadline.
"""

from rollstream.trackers.exporting import active, export

__all__ = ["active", "export"]
