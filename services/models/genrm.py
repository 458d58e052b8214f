"""Requests to a pairwise reward model (platform.md D1; the environment genrm_compare).

Invariant: the two answers and the principle leave the metadata and become the last messages of the conversation, under
roles that the model's own template knows.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from schemas.errors import DataError
from services.models.options import EngineOptions

CANDIDATES = ("response_1", "response_2")
PRINCIPLE = "principle"


def with_candidates(
    messages: list[dict[str, Any]], metadata: Mapping[str, Any], options: EngineOptions
) -> list[dict[str, Any]]:
    """The conversation, then the principle (where there is one and the template knows it), then both answers."""
    roles = list(CANDIDATES)
    if options.supports_principle and metadata.get(PRINCIPLE):
        roles.insert(0, PRINCIPLE)
    missing = [role for role in roles if not isinstance(metadata.get(role), str)]
    if missing:
        raise DataError(f"a reward model compares two answers: metadata has no text {missing[0]}")
    return [*messages, *({"role": role, "content": metadata[role]} for role in roles)]
