"""Score one trajectory.

Owns the way from `trajectories` to `scored-rollouts`. Invariant: a trajectory leaves as exactly one scored line or one
failure; a verifier that raises, returns something else than a verdict, or does not return costs that rollout alone.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Literal

from environments.registry import Registry
from schemas import codec, headers, jsontext
from schemas.errors import RolloutError
from schemas.events import Scored, Trajectory
from schemas.topics import INLINE_LIMIT
from services.runtime.claims import ClaimStore, claim_name, claim_of
from services.runtime.clients import Clients
from services.runtime.control import Control
from services.runtime.failures import Failures, trace_of
from services.runtime.offload import Offload
from services.runtime.record import ConsumerRecord, Outgoing, Outputs
from services.runtime.scope import Scope
from services.runtime.standing import check_running
from services.verifier_worker.line import result_line
from services.verifier_worker.verifying import Subject, Verifying


@dataclass(frozen=True, slots=True)
class VerifyTools:
    """What the verifier step needs. `timeout_s` bounds one verification; `record_judge_calls` puts them into the line."""

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


class VerifyStep:
    """The step of the `trajectories` stage."""

    def __init__(self, tools: VerifyTools) -> None:
        self._tools = tools
        self._verifying = Verifying(tools.offload, tools.clients, tools.timeout_s, tools.record_judge_calls)

    async def __call__(self, record: ConsumerRecord) -> Outputs:
        if self._tools.scope.excludes(record):
            return ()
        try:
            trajectory = codec.decode(record.value or b"", Trajectory)
        except RolloutError as e:
            return [self._tools.failures.of_record(e, record)]
        try:
            return [await self._score(trajectory, record)]
        except RolloutError as e:
            return [self._tools.failures.of_rollout(e, trajectory, record)]

    async def _score(self, trajectory: Trajectory, record: ConsumerRecord) -> Outgoing:
        check_running(self._tools.control, trajectory.ref.run_id)
        environment = self._tools.registry.binding(trajectory.environment, None).environment
        claims, ref = self._tools.claims, trajectory.ref
        row_data = trajectory.row.data or await claims.unpack(ref, "row", trajectory.row)
        response = trajectory.response.data or await claims.unpack(ref, "response", trajectory.response)
        row = jsontext.loads(row_data)
        subject = Subject(ref, trajectory.environment, row_data, response, trajectory.env_state)
        verdict = await self._verifying.verdict(environment, subject, row)
        added = trajectory.result.data or await claims.unpack(ref, "result", trajectory.result)
        line = result_line(ref, trajectory.agent, row, response, verdict, jsontext.loads(added) if added else None)
        return await self._scored(trajectory, verdict.reward, line, record)

    async def _scored(self, trajectory: Trajectory, reward: float, line: bytes, record: ConsumerRecord) -> Outgoing:
        ref, source = trajectory.ref, trajectory.source
        more = [
            (headers.ENVIRONMENT, trajectory.environment.encode()),
            (headers.SOURCE, f"{source.topic}/{source.partition}/{source.offset}".encode()),
            *trace_of(record),
        ]
        if self._tools.scored_format == "avro":
            payload = await self._tools.claims.pack(ref, "line", line)
            event = Scored(ref, trajectory.environment, trajectory.agent, source, reward, payload)
            value = codec.encode(event)
        elif len(line) > INLINE_LIMIT:
            claim = claim_of(line)
            name = claim_name(ref, "line", claim)
            await self._tools.claims.put(name, line)
            value, more = name.encode(), [*more, (headers.CLAIM, name.encode())]
        else:
            value = line
        return Outgoing(self._tools.scored_topic, ref.task_key, value, headers.of(ref, *more))
