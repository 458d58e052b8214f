"""From a trajectory to its record on `scored-rollouts`.

Owns what a verification is given and how its line is sent. Invariant: what is large travels by reference, both ways.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Literal

from environments.environment import Environment
from environments.verdict import Verdict
from schemas import codec, headers, jsontext
from schemas.events import Scored, Trajectory
from schemas.topics import INLINE_LIMIT
from services.runtime.claims import ClaimStore, claim_name, claim_of
from services.runtime.failures import trace_of
from services.runtime.record import ConsumerRecord, Outgoing
from services.verifier_worker.line import result_line
from services.verifier_worker.verifying import Subject, Verifying

Stamp = Callable[[Trajectory, ConsumerRecord], Mapping[str, Any]]
"""Fields by which the lines of a re-verification say what they are (`line.SCORING`)."""


@dataclass(frozen=True, slots=True)
class Writing:
    """Makes the record of a line."""

    topic: str
    claims: ClaimStore
    scored_format: Literal["json", "avro"] = "json"

    async def record(self, trajectory: Trajectory, reward: float, line: bytes, record: ConsumerRecord) -> Outgoing:
        """The line as it is sent; `record` is the trajectory's."""
        ref, source = trajectory.ref, trajectory.source
        more = [
            (headers.ENVIRONMENT, trajectory.environment.encode()),
            headers.score_of(ref, reward),
            (headers.SOURCE, f"{source.topic}/{source.partition}/{source.offset}".encode()),
            *trace_of(record),
        ]
        if self.scored_format == "avro":
            payload = await self.claims.pack(ref, "line", line)
            value = codec.encode(Scored(ref, trajectory.environment, trajectory.agent, source, reward, payload))
        elif len(line) > INLINE_LIMIT:
            name = claim_name(ref, "line", claim_of(line))
            await self.claims.put(name, line)
            value, more = name.encode(), [*more, (headers.CLAIM, name.encode())]
        else:
            value = line
        return Outgoing(self.topic, ref.task_key, value, headers.of(ref, *more))


@dataclass(frozen=True, slots=True)
class Scoring:
    """Scores trajectories."""

    claims: ClaimStore
    verifying: Verifying
    writing: Writing
    stamp: Stamp | None = None

    async def subject(self, trajectory: Trajectory) -> Subject:
        """What of a trajectory is verified, fetched from wherever it lies."""
        ref = trajectory.ref
        row = trajectory.row.data or await self.claims.unpack(ref, "row", trajectory.row)
        response = trajectory.response.data or await self.claims.unpack(ref, "response", trajectory.response)
        return Subject(ref, trajectory.environment, row, response, trajectory.env_state)

    async def scored(self, environment: Environment, trajectory: Trajectory, record: ConsumerRecord) -> Outgoing:
        """The record of a rollout that is scored by itself; raises the `RolloutError` that kept it from a score."""
        subject = await self.subject(trajectory)
        row = jsontext.loads(subject.row)
        verdict = await self.verifying.verdict(environment, subject, row)
        return await self.written(trajectory, record, subject, row, verdict)

    async def written(
        self,
        trajectory: Trajectory,
        record: ConsumerRecord,
        subject: Subject,
        row: Mapping[str, Any],
        verdict: Verdict,
        beside: Mapping[str, Any] | None = None,
    ) -> Outgoing:
        """The record of a verdict; `beside` are further fields of the line."""
        data = trajectory.result.data or await self.claims.unpack(trajectory.ref, "result", trajectory.result)
        added = {**(jsontext.loads(data) if data else {}), **(beside or {})}
        if self.stamp is not None:
            added |= self.stamp(trajectory, record)
        line = result_line(trajectory.ref, trajectory.agent, row, subject.response, verdict, added)
        return await self.writing.record(trajectory, verdict.reward, line, record)
