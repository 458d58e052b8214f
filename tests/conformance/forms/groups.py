"""`arrivals` and `compare`: rollouts that are scored together, as they arrive or in one call (genrm_compare.md).

`arrivals` is in order of arrival; siblings have one `group_key`. A group that is full is scored by `verify_group`; of one that is not,
the comparisons that can be made are made, and its rewards are null. A judge's `pair` and `judge_pairs` are indexes of arrivals.
"""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any

from environments import dispatch
from environments.common.judging import purpose
from environments.environment import Member
from environments.genrm_compare.environment import GenrmCompare, answer_of
from environments.response import Response
from environments.testing import EnvironmentHarness
from schemas.rows import check_row
from tests.conformance.cases import Case
from tests.conformance.forms.form import Form, Outcome
from tests.conformance.forms.judge import Everyone, ScriptedJudge


class Groups(Form):
    """Scores the groups of a case."""

    keys = frozenset({"arrivals", "compare"})

    def obstacle(self, case: Case) -> str | None:
        known = {"task_overrides", "response"}
        unknown = sorted({k for a in case.data.get("arrivals") or () for k in a} - known)
        return f"arrivals with {', '.join(unknown)}" if unknown else None

    def outcome(self, case: Case, harness: EnvironmentHarness) -> Outcome | None:
        if not self.keys & case.data.keys():
            return None
        environment = harness.environment
        assert isinstance(environment, GenrmCompare)
        if "compare" in case.data:
            return Outcome(asyncio.run(_compared(case.data["compare"], environment, harness)))
        return Outcome({"rewards": _Arrivals(case, environment, harness).rewards()})

    def check(self, case: Case, harness: EnvironmentHarness, outcome: Outcome) -> list[str]:
        wanted = case.data.get("judge_pairs")
        if wanted is None or not isinstance(harness.context.models, Everyone):
            return []
        calls = Counter(call.purpose for call in harness.context.models.judge.calls)
        expected = Counter(",".join(map(str, pair)) for pair in wanted)
        return [] if calls == expected else [f"judge_pairs: expected {dict(expected)}, found {dict(calls)}"]


async def _compared(body: Mapping[str, Any], environment: GenrmCompare, harness: EnvironmentHarness) -> dict[str, Any]:
    answers = [answer_of(Response(r)) for r in body["response_objs"]]
    return await environment.compare(body["conversation_history"], answers, body.get("principle"), harness.context)


class _Arrivals:
    def __init__(self, case: Case, environment: GenrmCompare, harness: EnvironmentHarness) -> None:
        self._environment, self._context = environment, harness.context
        self._size = environment.config.num_rollouts_per_prompt
        rows = [check_row({**case.data["task"], **(a.get("task_overrides") or {})}) for a in case.data["arrivals"]]
        self._members = [
            Member(dispatch.read_task(environment, row), Response(a["response"]))
            for row, a in zip(rows, case.data["arrivals"], strict=True)
        ]

    def rewards(self) -> list[float | None]:
        found: list[float | None] = [None] * len(self._members)
        for indexes in self._groups():
            for index, reward in zip(indexes, asyncio.run(self._scored(indexes)), strict=False):
                found[index] = reward
        return found

    def _groups(self) -> Iterator[list[int]]:
        """Indexes of arrivals that are siblings; one too many begins another group."""
        found: dict[str, list[int]] = {}
        for index, member in enumerate(self._members):
            group = found.setdefault(self._environment.group_key(member.task), [])
            group.append(index)
            if len(group) >= self._size:
                yield found.pop(self._environment.group_key(member.task))
        yield from found.values()

    async def _scored(self, indexes: Sequence[int]) -> list[float]:
        members = [self._members[i] for i in indexes]
        judge = self._context.models.judge if isinstance(self._context.models, Everyone) else ScriptedJudge(())
        context = replace(self._context, models=Everyone(_Renumbered(judge, indexes), {}))
        if len(members) >= self._size:
            verdicts = await dispatch.run_verify_group(self._environment, members, context)
            return [v.reward for v in verdicts]
        await self._environment.arrived(members, self._size, context)
        return []


class _Renumbered(ScriptedJudge):
    """A judge for one group: pairs are indexes in the group there and indexes of arrivals in the case."""

    def __init__(self, judge: ScriptedJudge, indexes: Sequence[int]) -> None:
        self._judge, self._indexes = judge, indexes

    async def create(self, params: Mapping[str, Any]) -> Response:
        pair = ",".join(str(self._indexes[int(i)]) for i in purpose().split(","))
        return await self._judge.create(params, pair)
