"""What ours answers where the reference crashes, when the environment's page says so for the whole environment.

Invariant: an entry here names fields that must be there, so a crash that became a silent score of 0 does not pass.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any


class SomeText:
    """Equal to any text that is not empty."""

    def __eq__(self, other: object) -> bool:
        return isinstance(other, str) and other != ""

    __hash__ = None  # type: ignore[assignment]

    def __repr__(self) -> str:
        return "some text"


BETTER: Mapping[str, Mapping[str, Any]] = {"example_multi_step": {"reward": 0.0, "error": SomeText()}}
