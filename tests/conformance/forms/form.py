"""What a form is: the part of a case that some of its keys ask for.

To add one (judge, sandbox, steps, group, …): write a module beside this one with a subclass of `Form`, and list it in
`all_forms`. A case whose keys no form knows is skipped and the key is named, so nothing passes unread.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, ClassVar

from environments.context import Context
from environments.testing import EnvironmentHarness
from schemas.errors import RolloutError
from tests.conformance.cases import Case


@dataclass(frozen=True)
class Outcome:
    """How a case's rollout ended: the fields of its result line, or the error that took their place."""

    fields: Mapping[str, Any]
    error: RolloutError | None = None


@dataclass(frozen=True)
class Played:
    """A response that a form brought about by playing, and the fields that the result line has besides the verdict's."""

    response: Mapping[str, Any]
    fields: Mapping[str, Any]


class Form:
    """Does nothing in each of the places where a form may act."""

    keys: ClassVar[frozenset[str]] = frozenset()
    """Keys of a case that this form understands."""

    expected_keys: ClassVar[frozenset[str]] = frozenset()
    """Keys of `expected` that are this form's and no fields of the result."""

    def obstacle(self, case: Case) -> str | None:
        """Why the case cannot run here, or None."""
        return None

    def context(self, case: Case, context: Context) -> Context:
        """The context with this form's scripted clients."""
        return context

    def play(self, case: Case, harness: EnvironmentHarness) -> list[str]:
        """What happens between seeding and verifying; returns what differs from the case."""
        return []

    def response(self, case: Case, harness: EnvironmentHarness) -> Played | None:
        """The response to score when the case does not give it, or None."""
        return None

    def outcome(self, case: Case, harness: EnvironmentHarness) -> Outcome | None:
        """How a case ends that is about something else than one rollout, or None. It may raise a `RolloutError`."""
        return None

    def check(self, case: Case, harness: EnvironmentHarness, outcome: Outcome) -> list[str]:
        """What differs from the case once the rollout is scored."""
        return []
