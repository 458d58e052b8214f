"""A failure of a rollout that its group waits for is announced, in the commit of the failure; other failures are not."""

from __future__ import annotations

import dataclasses

import pytest
from support.pipeline import registry
from support.steps import REF, read, record, rollout

from schemas import codec
from schemas.errors import DuplicateError, FailureClass, ModelError, RolloutCancelled, RolloutExpired
from schemas.events import Turn
from services.runtime.absence import Absences
from services.runtime.delivery import Position
from services.runtime.failures import Failures
from services.runtime.record import Outgoing, TopicPartition

FAILURES = Failures("p.failures", "agent", FailureClass.INFRASTRUCTURE)
GROUPED = dataclasses.replace(REF, group_size=4)
ROW = {"responses_create_params": {"input": "Go."}}


@pytest.fixture(scope="module")
def absences():
    return Absences("p.failures", "p.trajectories", registry())


def failure(error, *, ref=GROUPED, variant="ranked"):
    event = rollout(ROW, variant, ref=ref)
    return FAILURES.of_rollout(error, event, record("turns", codec.encode(Turn(event))))


@pytest.mark.parametrize(
    ("error", "text"),
    [
        (ModelError("the model is gone"), "failed in the agent stage (model)"),
        (RolloutExpired("too late"), "expired in the agent stage (timeout)"),
        (RolloutCancelled("cancelled"), "cancelled in the agent stage (cancelled)"),
    ],
)
def test_a_rollout_that_ends_is_announced_to_its_group(absences, error, text):
    (out,) = absences.of([Outgoing("p.turns", b"k", b"v"), failure(error)])
    assert (out.topic, out.key) == ("p.trajectories", GROUPED.task_key)
    event = read(out)
    assert (event.ref, event.environment, event.absent) == (GROUPED, "ranked", text)
    assert ("rs-run", b"r") in out.headers


@pytest.mark.parametrize(
    "out",
    [
        failure(ModelError("x"), ref=REF),
        failure(ModelError("x"), variant="faulty"),
        failure(ModelError("x"), variant="no_such_thing"),
        failure(DuplicateError("x")),
        FAILURES.of_record(ValueError("x"), record("turns", b"garbage")),
        Outgoing("p.turns", b"k", b"v"),
    ],
    ids=["a group of one", "not scored in groups", "unknown", "duplicate", "nobody's", "no failure"],
)
def test_nothing_else_is_announced(absences, out):
    assert absences.of([out]) == []


class Delivery:
    def __init__(self, partition):
        self.partition, self.committed, self.closed = partition, [], False

    async def open(self):
        return Position(7)

    async def commit(self, outputs, position):
        self.committed.append(([o.topic for o in outputs], position))

    async def close(self):
        self.closed = True


async def test_the_announcement_is_in_the_commit_of_the_failure(absences):
    made = []

    def deliveries(partition):
        made.append(Delivery(partition))
        return made[-1]

    delivery = absences.announced(deliveries)(TopicPartition("t", 3))
    assert await delivery.open() == Position(7)
    await delivery.commit([failure(ModelError("x"))], Position(8))
    await delivery.commit([], Position(9))
    await delivery.close()
    (inner,) = made
    assert inner.partition == TopicPartition("t", 3)
    assert inner.committed == [(["p.failures", "p.trajectories"], Position(8)), ([], Position(9))]
    assert inner.closed
