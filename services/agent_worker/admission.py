"""Admission: a prompt becomes rollouts, each ready for its first turn.

Owns what may enter the pipeline. Invariant: every rollout that a prompt asks for leaves as exactly one turn (or tool
worker seed), or one failure; a prompt that cannot be read leaves as one failure with its bytes.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from inspect import iscoroutinefunction
from typing import Any

from environments.dispatch import first_state, read_task, start_seed
from environments.environment import Environment, Seed
from environments.registry import Binding, Registry
from schemas import codec, headers, jsontext
from schemas.errors import (
    DataError,
    DuplicateError,
    InfrastructureError,
    RolloutError,
    RolloutTimeout,
)
from schemas.events import Payload, Rollout, ToolCalls, Turn
from schemas.identity import RolloutRef
from schemas.prompts import Task, read_prompt
from schemas.quick import evolve
from schemas.rows import agent_name
from services.agent_worker.conversation import items_json, within_record
from services.agent_worker.seen import Seen
from services.runtime.claims import ClaimStore
from services.runtime.clients import Clients
from services.runtime.control import Control
from services.runtime.event_record import event_record
from services.runtime.failures import Failures, place_of, trace_of
from services.runtime.offload import Offload
from services.runtime.pressure import Pressure
from services.runtime.record import ConsumerRecord, Outgoing, Outputs
from services.runtime.scope import Scope
from services.runtime.standing import check_running
from services.runtime.state import write_state

_SEED_TIMEOUT_S = 120.0
"""For all rollouts of one prompt together; the stage's own deadline is far behind it."""

_SEEDS_AT_ONCE = 64
"""Rollouts of one prompt whose seeds are awaited together: slow seeds of a large group overlap."""

_INLINE_ROW = 256 << 10
"""Rows above this travel by reference from the start: they would be written again with every turn."""

_REFUSED_BYTES = 1 << 20
"""The failures of one refused prompt repeat its row up to this many bytes in all; the first always has it."""


@dataclass(frozen=True, slots=True)
class AdmissionTools:
    """What admission needs. Topics are full names; `rollout_timeout_s` is the default deadline of a rollout."""

    turns_topic: str
    tool_calls_topic: str
    registry: Registry
    failures: Failures
    claims: ClaimStore
    control: Control
    pressure: Pressure
    offload: Offload
    clients: Clients
    scope: Scope
    rollout_timeout_s: float
    now: Callable[[], float] = time.time


class Admission:
    """The step of the `prompts` stage."""

    def __init__(self, tools: AdmissionTools, seen: Seen | None = None) -> None:
        self._tools = tools
        self._seen = seen or Seen()

    def __call__(self, record: ConsumerRecord) -> Outputs | Awaitable[Outputs]:
        """The turns of a prompt's rollouts. Answers at once unless something has to be awaited: a seed, a large row."""
        tools = self._tools
        if tools.scope.excludes(record):
            return ()
        try:
            task = read_prompt(record.value, place_of(record))
            if tools.scope.run and task.prompt.run_id != tools.scope.run:
                return ()
            check_running(tools.control, task.prompt.run_id)
            binding = _bind(tools.registry, task)
            checked = read_task(binding.environment, task.row)
        except RolloutError as e:
            return self._refused(e, record)
        except Exception as e:  # noqa: BLE001 - an environment's own check may raise anything; it costs its prompt
            return self._refused(DataError(f"the task cannot be read: {e!r}"), record)
        return self._admit(record, task, binding, checked)

    def forget(self, partition: int) -> None:
        """A partition is about to be read from before its committed offset."""
        self._seen.forget(partition)

    def remember(self, record: ConsumerRecord) -> None:
        """Note the rollouts of a record that was admitted before this worker had the partition."""
        try:
            task = read_prompt(record.value, place_of(record))
        except RolloutError:
            return
        for ref in task.rollouts():
            self._seen.add(record.partition, ref)

    def _admit(self, record: ConsumerRecord, task: Task, binding: Binding, checked: Any) -> Outputs | Awaitable[Outputs]:
        outputs, fresh = [], []
        for ref in task.rollouts():
            if self._seen.add(record.partition, ref):
                fresh.append(ref)
            else:
                outputs.append(self._duplicate(ref, record, binding.name, binding.agent_name))
        self._tools.pressure.admitted(len(fresh))
        starts = [self._start(ref, record, task, binding) for ref in fresh]
        environment = binding.environment
        here = environment.seed_on == "admission"
        if not starts or (here and _plain(environment) and len(task.row_json) <= _INLINE_ROW):
            return [*outputs, *(self._turn(r, record) for r in starts)]
        return self._prepare(outputs, starts, record, environment, checked)

    async def _prepare(
        self, outputs: list[Outgoing], starts: list[Rollout], record: ConsumerRecord, environment: Environment, task: Any
    ) -> Outputs:
        """Store a large row, and seed: many rollouts at a time, all within one deadline."""
        end = asyncio.get_running_loop().time() + _SEED_TIMEOUT_S
        for i in range(0, len(starts), _SEEDS_AT_ONCE):
            some = starts[i : i + _SEEDS_AT_ONCE]
            outputs += await asyncio.gather(*(self._begin(s, record, environment, task, end) for s in some))
        return outputs

    async def _begin(self, start: Rollout, record: ConsumerRecord, environment: Environment, task: Any, end: float) -> Outgoing:
        """The first event of a rollout, or its failure."""
        try:
            async with asyncio.timeout_at(end):
                row = await self._tools.claims.pack(start.ref, "row", start.row.data, _INLINE_ROW)
                return await self._seeded(evolve(start, row=row), record, environment, task)
        except RolloutError as e:
            error: RolloutError = e
        except TimeoutError:
            error = RolloutTimeout(f"the rollouts of the prompt were not seeded within {_SEED_TIMEOUT_S:g} s")
        except Exception as e:  # noqa: BLE001 - a seed may hold what cannot be written; it costs its rollout
            error = InfrastructureError(f"{start.environment}: {e!r}", retryable=False)
        return self._tools.failures.of_rollout(error, start, record)

    async def _seeded(self, start: Rollout, record: ConsumerRecord, environment: Environment, task: Any) -> Outgoing:
        found = headers.of(start.ref, *trace_of(record, start.ref))
        if environment.seed_on == "tool_worker":
            return event_record(self._tools.tool_calls_topic, start.ref.key, ToolCalls(start, kind="seed"), found)
        context = self._tools.clients.context(start.ref, 0)
        seed = await self._tools.offload.submit(
            lambda: start_seed(environment, task, context), _SEED_TIMEOUT_S, waits=iscoroutinefunction(environment.seed)
        )
        rollout = await within_record(self._tools.claims, seeded(start, environment, seed))
        return event_record(self._tools.turns_topic, start.ref.key, Turn(rollout), found)

    def _start(self, ref: RolloutRef, record: ConsumerRecord, task: Task, binding: Binding) -> Rollout:
        now_ms = int(self._tools.now() * 1000)
        timeout_s = task.prompt.timeout_s or self._tools.rollout_timeout_s
        return Rollout(
            ref=ref,
            environment=binding.name,
            agent=binding.agent_name,
            source=place_of(record),
            admitted_ms=now_ms,
            row=Payload(task.row_json),
            deadline_ms=now_ms + int(timeout_s * 1000),
        )

    def _turn(self, rollout: Rollout, record: ConsumerRecord) -> Outgoing:
        value = codec.encode(Turn(rollout))
        return Outgoing(
            self._tools.turns_topic, rollout.ref.key, value, headers.of(rollout.ref, *trace_of(record, rollout.ref))
        )

    def _duplicate(self, ref: RolloutRef, record: ConsumerRecord, environment: str, agent: str) -> Outgoing:
        """The record of a second dispatch; its row is that of the first."""
        error = DuplicateError(f"rollout {ref.rollout_id} of run {ref.run_id} was dispatched before; this dispatch is ignored")
        return self._tools.failures.of_ref(error, ref, record, b"", environment, agent)

    def _refused(self, error: RolloutError, record: ConsumerRecord) -> Outputs:
        """One failure for each rollout that was asked for; one for the record when even that cannot be read."""
        failures = self._tools.failures
        try:
            task = read_prompt(record.value, place_of(record))
        except RolloutError:
            return [failures.of_record(error, record)]
        prompt = task.prompt
        names = (prompt.environment or "", prompt.agent or _agent_name(task.row) or "")
        original = b"" if record.value == task.row_json else record.value or b""
        outputs: list[Outgoing] = []
        room = _REFUSED_BYTES
        for ref in task.rollouts():
            if not self._seen.add(record.partition, ref):
                outputs.append(self._duplicate(ref, record, *names))
                continue
            row = task.row_json if room > 0 else b""
            outputs.append(failures.of_ref(error, ref, record, row, *names, original=original if room > 0 else b""))
            room -= len(row) + len(original)
        return outputs


def seeded(start: Rollout, environment: Environment, seed: Seed) -> Rollout:
    """The rollout as the seed begins it."""
    return evolve(
        start,
        items=items_json(seed.items),
        env_state=write_state(first_state(environment, seed)),
        tools=jsontext.dumps(seed.tools) if seed.tools else b"",
    )


def _bind(registry: Registry, task: Task) -> Binding:
    prompt = task.prompt
    return registry.binding(prompt.environment, prompt.agent or agent_name(task.row))


def _agent_name(row: dict[str, Any]) -> str | None:
    try:
        return agent_name(row)
    except DataError:
        return None


def _plain(environment: Environment) -> bool:
    """Whether a rollout of the environment starts without a seed of its own."""
    return type(environment).seed is Environment.seed and environment.State is None
