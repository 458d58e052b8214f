"""Checking an environment (`rollstream environment check`): what can be said of it without a model, a broker or a worker.

Invariant: a check that could not be made is `skipped` with its reason, never passed; and whatever an environment raises becomes
a finding about it.
"""
