"""Score the rollouts of one task together.

Invariant: each rollout that came leaves as exactly one scored line or one failure, and a score that was given without all of
the group says so: how many there should have been, which were missing, and why.
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal

from environments.registry import Registry
from environments.verdict import Verdict
from schemas import codec, jsontext
from schemas.errors import DuplicateError, Outcome, RolloutError, VerifierError
from schemas.events import Trajectory
from services.runtime.control import Control
from services.runtime.failures import Failures
from services.runtime.record import ConsumerRecord, Outputs
from services.runtime.standing import check_running
from services.verifier_worker.groups import Closed, Why
from services.verifier_worker.line import NOTES
from services.verifier_worker.scored import Scoring
from services.verifier_worker.verifying import Subject

GROUP = "_ng_group"
"""The field of a line that was scored in an incomplete group: `size`, `scored` (how many were), `missing`."""


@dataclass(frozen=True, slots=True)
class _Member:
    record: ConsumerRecord
    trajectory: Trajectory
    subject: Subject


@dataclass(frozen=True, slots=True)
class GroupScoring:
    """Makes the outputs of closed groups (`groups.Score`). `timeout_s` is how long groups wait, for the message."""

    scoring: Scoring
    registry: Registry
    failures: Failures
    control: Control
    timeout_s: float
    incomplete: Literal["score", "fail"]

    async def __call__(self, closed: Closed) -> Mapping[int, Outputs]:
        outputs: dict[int, Outputs] = {}
        for record in closed.superseded:
            trajectory = codec.decode(record.value or b"", Trajectory)
            outputs[record.offset] = self._failed(repetition(trajectory, Outcome.SUPERSEDED), trajectory, record)
        read = await asyncio.gather(*(self._read(record) for record in closed.present))
        outputs |= {r.offset: o for r, o in zip(closed.present, read, strict=True) if not isinstance(o, _Member)}
        members = [m for m in read if isinstance(m, _Member)]
        if members:
            outputs |= await self._group(closed, members)
        return outputs

    async def _read(self, record: ConsumerRecord) -> _Member | Outputs:
        """The member in a record, or its failure."""
        trajectory = codec.decode(record.value or b"", Trajectory)  # it was read when it came
        try:
            return _Member(record, trajectory, await self.scoring.subject(trajectory))
        except RolloutError as e:
            return self._failed(e, trajectory, record)

    async def _group(self, closed: Closed, members: Sequence[_Member]) -> dict[int, Outputs]:
        gap = self._gap(closed, len(members))
        verdicts: Sequence[Verdict | RolloutError]
        try:
            check_running(self.control, closed.key[0])
            verdicts = await self._verdicts(members, gap)
        except RolloutError as e:
            return {m.record.offset: self._failed(e, m.trajectory, m.record) for m in members}
        beside = _told(closed, gap, sum(isinstance(v, Verdict) for v in verdicts))
        made = [self._output(m, v, beside) for m, v in zip(members, verdicts, strict=True)]
        return {m.record.offset: o for m, o in zip(members, await asyncio.gather(*made), strict=True)}

    async def _verdicts(self, members: Sequence[_Member], gap: str) -> Sequence[Verdict | RolloutError]:
        if gap and self.incomplete == "fail":
            raise VerifierError(f"the group was not scored, because {gap} (setting `groups.incomplete`)")
        environment = self.registry.binding(members[0].trajectory.environment, None).environment
        subjects = [m.subject for m in members]
        return await self.scoring.verifying.verdicts(environment, subjects, all_or_none=self.incomplete == "fail")

    async def _output(self, member: _Member, verdict: Verdict | RolloutError, beside: Mapping[str, Any]) -> Outputs:
        trajectory, record, subject = member.trajectory, member.record, member.subject
        try:
            if isinstance(verdict, RolloutError):
                raise verdict
            row = jsontext.loads(subject.row)
            return [await self.scoring.written(trajectory, record, subject, row, verdict, beside)]
        except RolloutError as e:
            return self._failed(e, trajectory, record)

    def _failed(self, error: Exception, trajectory: Trajectory, record: ConsumerRecord) -> Outputs:
        return [self.failures.of_rollout(error, trajectory, record)]

    def _gap(self, closed: Closed, here: int) -> str:
        """What of the group is missing, in words; empty when nothing is."""
        reasons = [f"rollout {index} ended before: {why}" for index, why in sorted(closed.absent.items())]
        if closed.before:
            reasons.append(f"{closed.before} of its {closed.size} rollouts were taken before this one came")
        if closed.unknown:
            reasons.append(f"{closed.unknown} of its {closed.size} rollouts had not come {self._by(closed.why)}")
        unreadable = len(closed.present) - here
        if unreadable:
            reasons.append(f"{unreadable} of its rollouts could not be read")
        return "; ".join(reasons)

    def _by(self, why: Why) -> str:
        if why is Why.DEADLINE:
            return f"within {self.timeout_s:g} s (setting `groups.timeout_s`)"
        return "when the verifier had no room for more that wait" if why is Why.ROOM else "when it was closed"


def repetition(trajectory: Trajectory, outcome: Outcome) -> DuplicateError:
    """Why a trajectory is not counted: it came before (`DUPLICATE`), or a later attempt did (`SUPERSEDED`)."""
    what = "came before" if outcome is Outcome.DUPLICATE else "was superseded by a later attempt"
    error = DuplicateError(f"rollout {trajectory.ref.rollout_id} of run {trajectory.ref.run_id} {what}; this one is not scored")
    error.outcome = outcome
    return error


def _told(closed: Closed, gap: str, scored: int) -> dict[str, Any]:
    """The fields of a line that was scored without all of its group."""
    if not gap and scored == closed.size:
        return {}
    words = gap or f"{closed.size - scored} of its rollouts could not be read"
    missing = {str(index): why for index, why in sorted(closed.absent.items())}
    return {
        GROUP: {"size": closed.size, "scored": scored, "missing": missing},
        NOTES: [f"scored in a group of {scored} of {closed.size}: {words}"],
    }
