"""Rollouts of one task that are scored together, until all of them are here.

Invariant: every call ends: with its group's verdict, or with an error when the group was not complete in time. A member whose
caller has gone leaves its group.
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from environments.dispatch import read_task
from environments.environment import Environment
from environments.verdict import Verdict
from schemas.errors import CapacityError, DataError, RolloutError, VerifierError
from schemas.rows import TASK_INDEX
from services.verifier_worker.verifying import Subject, Verifying

MAX_GROUPS = 4_096
"""Groups that wait at once; each holds the rows and responses of its members."""


@dataclass(slots=True)
class _Group:
    size: int
    members: list[tuple[Subject, asyncio.Future[Verdict]]] = field(default_factory=list)


class Gathering:
    """The groups that wait in this process, for at most `timeout_s`. `size` wins over what an environment says of itself."""

    def __init__(self, verifying: Verifying, size: int | None, timeout_s: float) -> None:
        self._verifying, self._size, self._timeout_s = verifying, size, timeout_s
        self._waiting: dict[str, _Group] = {}
        self._scoring: set[asyncio.Task[None]] = set()

    async def verdict(self, environment: Environment, subject: Subject, row: Mapping[str, Any]) -> Verdict:
        """The verdict on `subject` as a member of its group; raises `VerifierError` when the others did not come."""
        key = f"{subject.environment}/{_key(environment, row)}"
        if key not in self._waiting and len(self._waiting) >= MAX_GROUPS:
            raise CapacityError(f"{MAX_GROUPS:,} groups are waiting for members")
        group = self._waiting.setdefault(key, _Group(self._size_of(environment)))
        member = (subject, asyncio.get_running_loop().create_future())
        group.members.append(member)
        if len(group.members) >= group.size:
            del self._waiting[key]
            task = asyncio.ensure_future(self._score(environment, group))
            self._scoring.add(task)
            task.add_done_callback(self._scoring.discard)
        return await self._of(member, group, key)

    async def _of(self, member: tuple[Subject, asyncio.Future[Verdict]], group: _Group, key: str) -> Verdict:
        try:
            async with asyncio.timeout(self._timeout_s):
                return await member[1]
        except TimeoutError as e:
            here = len(group.members)
            raise VerifierError(f"of a group of {group.size} only {here} had come within {self._timeout_s:g} s") from e
        finally:
            if member in group.members and self._waiting.get(key) is group:
                group.members.remove(member)
                if not group.members:
                    del self._waiting[key]

    async def _score(self, environment: Environment, group: _Group) -> None:
        outcome: list[Verdict | RolloutError]
        try:
            subjects = [subject for subject, _ in group.members]
            outcome = await self._verifying.verdicts(environment, subjects, all_or_none=False)
        except RolloutError as e:
            outcome = [e] * len(group.members)
        for (_, future), found in zip(group.members, outcome, strict=True):
            if future.done():
                continue
            if isinstance(found, Verdict):
                future.set_result(found)
            else:
                future.set_exception(found)

    def _size_of(self, environment: Environment) -> int:
        return self._size or max(1, int(getattr(environment.config, "num_rollouts_per_prompt", 1)))


def _key(environment: Environment, row: Mapping[str, Any]) -> str:
    """What the rollouts of a task have in common: what the environment says, else the task's index."""
    key_of = getattr(environment, "group_key", None)
    if key_of is not None:
        return str(key_of(read_task(environment, row)))
    if row.get(TASK_INDEX) is None:
        raise DataError(f"rollouts of a task are scored together: give each its {TASK_INDEX}")
    return str(row[TASK_INDEX])
