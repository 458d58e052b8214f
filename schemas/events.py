"""The events that travel between stages.

Owns their shape; `schemas/avsc/` holds the Avro schemas generated from these classes, and `codec` the bytes. Invariant:
an event carries everything a worker needs to go on with the rollout, so any worker can continue any rollout. Conversation
items, rows and responses are JSON text kept as bytes: no stage parses what it does not need.

Absence is spelled as an empty value rather than null on the events of the hot path: fastavro takes twice as long for a
union as for a plain field, and a rollout's state has two dozen fields. For the same reason these are plain dataclasses:
pydantic checks a `Prompt` where it comes from outside, and Avro's schema the rest.
"""

from __future__ import annotations

from dataclasses import dataclass

from schemas.identity import Id, Place, RolloutRef
from schemas.quick import quick


@quick
@dataclass(frozen=True, slots=True)
class Claim:
    """A payload that travels by reference: `size` bytes with CRC-32 `crc`, kept in the claim store.

    Its name follows from the rollout, its position and these two numbers, so an event of a long conversation grows by a
    handful of bytes a turn, and two workers that both store one payload store it under one name.
    """

    size: int
    crc: int


@quick
@dataclass(frozen=True, slots=True)
class Payload:
    """Bytes that are either here (`data`) or in the claim store (`size` > 0, with `crc`; see `Claim`)."""

    data: bytes = b""
    size: int = 0
    crc: int = 0


@quick
@dataclass(frozen=True, slots=True)
class Rollout:
    """The whole state of one rollout between two turns.

    `turn` counts the model calls made. `settled` are the claims of the conversation's settled prefix in order, `items`
    the comma-separated JSON items after it. `memory` is the agent's own state, `env_state` the environment's, `usage`
    the summed usage, `reply` the last model reply (kept when the environment is to answer it or the rollout may end on it;
    an `output` that is a number stands for so many of the last `items`), `tools` a list of tools that the environment
    added to the row's: JSON each, empty when there is none. `done` says that the environment has ended the rollout. Times
    are epoch milliseconds; a `deadline_ms` of 0 means none.
    """

    ref: RolloutRef
    environment: str
    agent: str
    source: Place
    admitted_ms: int
    row: Payload
    deadline_ms: int = 0
    turn: int = 0
    settled: tuple[Claim, ...] = ()
    items: bytes = b""
    memory: bytes = b""
    env_state: bytes = b""
    usage: bytes = b""
    reply: bytes = b""
    tools: bytes = b""
    done: bool = False


@dataclass(frozen=True, slots=True)
class Prompt:
    """A task and how many rollouts it wants; the edge event of `prompts` (JSON or Avro).

    `row` is a NeMo Gym row (platform.md A1). `task_id` and `task_index` default to the record's place in the topic.
    Rollouts get indices `first_rollout .. first_rollout + repeats - 1`; `group_size` defaults to `repeats`.
    `environment` and `agent` win over the row's `agent_ref`. `timeout_s` bounds each rollout from its admission.
    """

    row: bytes
    run_id: Id = "default"
    task_id: str | None = None
    task_index: int | None = None
    repeats: int = 1
    first_rollout: int = 0
    attempt: int = 0
    group_size: int | None = None
    environment: str | None = None
    agent: str | None = None
    timeout_s: float | None = None


@quick
@dataclass(frozen=True, slots=True)
class Turn:
    """A rollout ready for its next model call."""

    rollout: Rollout


@quick
@dataclass(frozen=True, slots=True)
class ToolCall:
    """One function call as the model wrote it; `arguments` is untrusted text that should be JSON."""

    call_id: str
    name: str
    arguments: str


@quick
@dataclass(frozen=True, slots=True)
class ToolCalls:
    """Work for the tool worker.

    `kind` is `call` (run `calls` in order), `respond` (the environment's move), `seed`, or `close` (free what it holds).
    """

    rollout: Rollout
    kind: str = "call"
    calls: tuple[ToolCall, ...] = ()


@quick
@dataclass(frozen=True, slots=True)
class Trajectory:
    """A finished, unscored rollout; `response` is the Responses object of platform.md A5.

    `result` is a JSON object of fields that the agent adds to the result line, empty when there are none. `absent`, when
    not empty, is why the rollout ended without one: the record then only tells a group that is scored together not to wait.
    """

    ref: RolloutRef
    environment: str
    agent: str
    source: Place
    admitted_ms: int
    finished_ms: int
    row: Payload
    response: Payload
    turns: int = 1
    deadline_ms: int = 0
    env_state: bytes = b""
    result: Payload = Payload()
    absent: str = ""


@quick
@dataclass(frozen=True, slots=True)
class Scored:
    """A scored rollout in Avro form (`scored_format = "avro"`); `line` is the JSONL line without its line end."""

    ref: RolloutRef
    environment: str
    agent: str
    source: Place
    reward: float
    line: Payload


@quick
@dataclass(frozen=True, slots=True)
class Failure:
    """A rollout or message that ended without a score, with its reason and its original bytes.

    `source` is the prompt's place, `place` that of the record on which the stage gave up, `file` and `line` that of a
    row refused before it was sent. `original` is the value of the offending record, `response` what the policy had said
    by then.
    """

    run_id: str
    failure_class: str
    outcome: str
    stage: str
    error_type: str
    message: str
    retryable: bool
    failed_ms: int
    ref: RolloutRef | None = None
    environment: str = ""
    agent: str = ""
    source: Place | None = None
    place: Place | None = None
    file: str = ""
    line: int = 0
    detail: str = ""
    elapsed_ms: int = 0
    row: Payload = Payload()
    response: Payload = Payload()
    original: Payload = Payload()


EVENTS = (Prompt, Turn, ToolCalls, Trajectory, Scored, Failure)
"""Every event with an Avro schema of its own."""

Event = Prompt | Turn | ToolCalls | Trajectory | Scored | Failure
