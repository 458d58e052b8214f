from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any

import aiokafka
import pytest

from schemas import codec
from schemas.events import Failure, Payload
from schemas.identity import Place, RolloutRef
from schemas.topics import Topics

TOPICS = Topics()
SCORED = "rollstream.scored-rollouts"
FAILED = "rollstream.failures"


class Make:
    """Records as the earlier stages write them."""

    @staticmethod
    def record(
        topic: str, offset: int, value: bytes | None, headers: Sequence[tuple[str, bytes]] = (), partition: int = 0
    ) -> Any:
        return aiokafka.ConsumerRecord(topic, partition, offset, 0, 0, None, value, None, 0, 0, tuple(headers))

    @classmethod
    def scored(
        cls, offset: int, task: int, rollout: int = 0, attempt: int = 0, run: str = "r", partition: int = 0, **extra: Any
    ) -> Any:
        line: dict[str, Any] = {"responses_create_params": {"input": "é"}, "response": {}, "reward": 1.0}
        line |= {
            "_ng_task_index": task,
            "_ng_rollout_index": rollout,
            **({"_ng_attempt_index": attempt} if attempt else {}),
            **extra,
        }
        value = json.dumps(line, ensure_ascii=False, separators=(",", ":")).encode()
        return cls.record(SCORED, offset, value, [("rs-run", run.encode()), ("rs-rollout", b"x")], partition)

    @classmethod
    def event(cls, task: int | None = 0, attempt: int = 0, run: str = "r", **changes: Any) -> Failure:
        ref = None if task is None else RolloutRef(run, f"task-{task}", task, 0, attempt)
        values: dict[str, Any] = {"failure_class": "model", "outcome": "failed", "stage": "agent", "error_type": "ModelError"}
        values |= {"message": "401", "retryable": True, "failed_ms": 7, "ref": ref, "place": Place("rollstream.turns", 3, 9)}
        return Failure(run_id=run, **(values | changes))

    @classmethod
    def failed(cls, offset: int, event: Failure, partition: int = 0) -> Any:
        return cls.record(FAILED, offset, codec.encode(event), [("rs-run", event.run_id.encode())], partition)

    @staticmethod
    def claim(data: bytes) -> Payload:
        return Payload(b"", len(data), 1)


@pytest.fixture
def make() -> type[Make]:
    return Make


async def no_claims(*_: Any) -> bytes:
    raise AssertionError("nothing here travels by reference")
