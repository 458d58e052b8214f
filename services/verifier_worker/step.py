"""Score trajectories: each by itself, or those of a task together when the environment says so.

Owns the way from `trajectories` to `scored-rollouts`. Invariant: a trajectory leaves as exactly one scored line or one
failure; a verifier that raises, returns something else than a verdict, or does not return costs that rollout alone, or the
group that was scored with it.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Literal

from environments.registry import Registry
from schemas import codec
from schemas.errors import Outcome, RolloutError
from schemas.events import Trajectory
from services.runtime.claims import ClaimStore
from services.runtime.clients import Clients
from services.runtime.control import Control
from services.runtime.failures import Failures
from services.runtime.offload import Offload
from services.runtime.record import Answer, ConsumerRecord, Outputs
from services.runtime.scope import Scope
from services.runtime.shelf import Shelf
from services.runtime.standing import check_running
from services.verifier_worker.group_scoring import GroupScoring, repetition
from services.verifier_worker.groups import Arrival, Closed, GroupBounds, Groups
from services.verifier_worker.scored import Scoring, Stamp, Writing
from services.verifier_worker.verifying import Verifying


@dataclass(frozen=True, slots=True)
class VerifyTools:
    """What the verifier step needs. `timeout_s` bounds one verification; `record_judge_calls` puts them into the line.

    `incomplete_groups`: whether a group that is closed before all of its rollouts are here is scored or fails. `stamp` marks
    the lines of a re-verification.
    """

    scored_topic: str
    registry: Registry
    failures: Failures
    claims: ClaimStore
    control: Control
    offload: Offload
    clients: Clients
    scope: Scope
    timeout_s: float
    scored_format: Literal["json", "avro"] = "json"
    now: Callable[[], float] = time.time
    record_judge_calls: bool = True
    groups: GroupBounds = field(default_factory=GroupBounds)
    incomplete_groups: Literal["score", "fail"] = "score"
    stamp: Stamp | None = None


class VerifyStep:
    """The step of the `trajectories` stage. `groups` is its keeper."""

    def __init__(self, tools: VerifyTools) -> None:
        self._tools = tools
        verifying = Verifying(tools.offload, tools.clients, tools.timeout_s, tools.record_judge_calls)
        writing = Writing(tools.scored_topic, tools.claims, tools.scored_format)
        self._scoring = Scoring(tools.claims, verifying, writing, tools.stamp)
        self._shelf = Shelf(tools.groups.memory_bytes, tools.groups.disk_bytes)
        self._score_group = GroupScoring(
            self._scoring, tools.registry, tools.failures, tools.control, tools.groups.timeout_s, tools.incomplete_groups
        )
        self.groups = Groups(tools.groups, self._shelf, self._scored_together, tools.control.is_cancelled, tools.now)

    async def start(self) -> None:
        """Nothing to start."""

    async def close(self) -> None:
        """Remove what waits on disk: it is read again by whoever has the partitions next."""
        self._shelf.close()

    def __call__(self, record: ConsumerRecord) -> Answer:
        if self._tools.scope.excludes(record):
            return ()
        try:
            trajectory = codec.decode(record.value or b"", Trajectory)
        except RolloutError as e:
            return [self._tools.failures.of_record(e, record)]
        if trajectory.absent:
            return self._gathered(trajectory, record)
        try:
            environment = self._tools.registry.binding(trajectory.environment, None).environment
        except RolloutError as e:
            return [self._tools.failures.of_rollout(e, trajectory, record)]
        if environment.scoring == "group":
            return self._gathered(trajectory, record)
        return self._alone(trajectory, record)

    async def _alone(self, trajectory: Trajectory, record: ConsumerRecord) -> Outputs:
        try:
            check_running(self._tools.control, trajectory.ref.run_id)
            environment = self._tools.registry.binding(trajectory.environment, None).environment
            return [await self._scoring.scored(environment, trajectory, record)]
        except RolloutError as e:
            return [self._tools.failures.of_rollout(e, trajectory, record)]

    async def _scored_together(self, closed: Closed) -> Mapping[int, Outputs]:
        outputs = await self._score_group(closed)
        if not any(out.topic == self._tools.scored_topic for outs in outputs.values() for out in outs):
            self.groups.closed_badly(closed)
        return outputs

    def _gathered(self, trajectory: Trajectory, record: ConsumerRecord) -> Answer:
        ref = trajectory.ref
        arrival = Arrival((ref.run_id, ref.task_id), ref.rollout_index, ref.attempt, ref.group_size, trajectory.absent)
        answer = self.groups.add(record, arrival)
        if not isinstance(answer, Outcome):
            return answer
        if trajectory.absent:
            return ()
        return [self._tools.failures.of_rollout(repetition(trajectory, answer), trajectory, record)]
