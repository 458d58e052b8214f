"""Random numbers of environments.

Invariant: the same rollout at the same turn draws the same numbers, so a step that is done again decides alike.
"""

from __future__ import annotations

import hashlib
import random

from schemas.identity import RolloutRef

VERIFICATION = -1
"""The turn as which a verification counts."""


def rng_of(ref: RolloutRef, turn: int) -> random.Random:
    """Random numbers of one attempt of a rollout at one turn (0: its seed; `VERIFICATION`)."""
    seed = f"{ref.run_id}/{ref.rollout_id}/{turn}".encode()
    return random.Random(hashlib.blake2b(seed, digest_size=8).digest())  # noqa: S311 - simulation, not secrets
