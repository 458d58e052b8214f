"""Groups of stored rollouts that are scored together.

Invariant: a group is scored with all of its members that the files hold, whichever of them are asked for; a group that is not
whole says so in each of its lines, as the pipeline's do.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from environments.verdict import Verdict
from rollstream.reverify.batch import Loaded, Result, Source
from rollstream.reverify.guard import Verifier
from rollstream.reverify.pairing import Pair
from schemas.errors import RolloutError
from services.verifier_worker.group_scoring import GROUP
from services.verifier_worker.line import NOTES
from services.verifier_worker.verifying import Verifying


@dataclass(frozen=True, slots=True)
class Group:
    """A task's rollouts. `wanted` are those whose lines are to be written, `size` is how many there should be."""

    members: tuple[Loaded, ...]
    wanted: frozenset[int]
    size: int
    missing: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class Siblings:
    """Who belongs to whose group: `tasks` by the input rows; `beside` are rollouts that are scored and stay as they are."""

    tasks: Mapping[int, set[int]]
    beside: Mapping[int, Sequence[tuple[Source, Pair]]]

    def group(self, source: Source, pairs: Sequence[Pair]) -> Group:
        """The whole group of `pairs`, which are of one task."""
        task = pairs[0].task
        members = [Loaded.of(source, pair) for pair in pairs]
        members += [Loaded.of(other, pair) for other, pair in self.beside.get(task, ())]
        here = {m.pair.rollout for m in members}
        wanted = frozenset(p.rollout for p in pairs)
        expected = self.tasks.get(task, set()) | here
        return Group(tuple(members), wanted, len(expected), tuple(sorted(expected - here)))


async def score_group(
    source: Source, verifying: Verifying, verifier: Verifier, group: Group, recorded: Sequence[Any]
) -> list[Result]:
    """The results of the group's wanted members."""
    subjects = [dataclasses.replace(m.subject(verifier.variant), ref=_sized(m, group)) for m in group.members]
    found: Sequence[Verdict | RolloutError]
    try:
        found = await verifying.verdicts(verifier.environment, subjects, all_or_none=False, recorded=recorded)
    except RolloutError as e:
        found = [e] * len(subjects)
    beside = _told(group, sum(isinstance(v, Verdict) for v in found))
    pairs = zip(group.members, found, strict=True)
    return [_result(source, verifier, m, v, beside) for m, v in pairs if m.pair.rollout in group.wanted]


def _result(
    source: Source, verifier: Verifier, member: Loaded, verdict: Verdict | RolloutError, beside: Mapping[str, Any]
) -> Result:
    try:
        if isinstance(verdict, RolloutError):
            raise verdict
        return member.scored(source, verifier.stamp, verdict, beside)
    except RolloutError as e:
        return member.failed(source, verifier.stamp, e)


def _sized(member: Loaded, group: Group) -> Any:
    return dataclasses.replace(member.ref, group_size=group.size)


def _told(group: Group, scored: int) -> dict[str, Any]:
    if scored == group.size:
        return {}
    missing = {str(index): "no response in the stored files" for index in group.missing}
    words = f"scored in a group of {scored} of {group.size}: the others have no response in the stored files"
    return {GROUP: {"size": group.size, "scored": scored, "missing": missing}, NOTES: [words]}
