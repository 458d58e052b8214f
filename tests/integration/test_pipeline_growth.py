"""What a rollout costs on the wire, and what is too large for a record (design §2: growth is linear in the conversation)."""

from __future__ import annotations

from collections import Counter

import pytest
from support.pipeline import faulty, running, size_of

from rollstream.scripted import Options, ScriptedModel
from schemas import codec
from schemas.events import Trajectory
from schemas.topics import TRAJECTORIES

pytestmark = pytest.mark.integration

MAX_RATIO = 6
"""The issue's bound: all bytes written to Kafka against the final trajectory."""


def cost(topics, records):
    """All bytes against the trajectory's (what of it travels by reference included), and the bytes of each topic."""
    (value,) = [r.value for r in records if r.topic == topics.name(TRAJECTORIES)]
    event = codec.decode(value, Trajectory)
    by_topic = Counter()
    for record in records:
        by_topic[record.topic.removeprefix(f"{topics.prefix}.")] += size_of(record)
    return by_topic.total() / (len(value) + event.response.size + event.row.size), dict(by_topic)


@pytest.mark.parametrize("kind", ["tools", "partner"])
@pytest.mark.parametrize("size", [1, 4, 16])
async def test_all_bytes_on_the_wire_are_at_most_six_trajectories(kafka, topics, tmp_path, record_property, size, kind):
    """T turns of equal size (KiB): keys, values and headers of all records in all topics, the prompt and the score included.

    Both ways out of a turn: tools that say little (the worst case: the model's own words are all there is), and a partner
    in the conversation, who needs to see the last turn.
    """
    ratios = {}
    async with ScriptedModel() as model, running(kafka, topics, tmp_path, model) as pipe:
        for n, turns in enumerate((4, 16, 64), start=1):
            model.options = Options(turn_bytes=size << 10, tool_turns=turns - 1, pad_bytes=size << 10)
            row = faulty(tools=True) if kind == "tools" else faulty("faulty_partner", moves=turns)
            await pipe.send({"row": row, "run_id": f"t{turns}"}, headers=[("rs-run", f"t{turns}".encode())])
            assert (await pipe.ended(n)).failures == []
            mine = [r for r in await pipe.everything() if dict(r.headers).get("rs-run") == f"t{turns}".encode()]
            ratio, by_topic = cost(topics, mine)
            ratios[turns] = round(ratio, 2)
            claims = sum(p.is_file() for p in tmp_path.glob(f"claims/t{turns}/**/*"))
            print(f"{kind}, {turns} turns of {size} KiB: {ratio:.2f}; claims: {claims}; {by_topic}")  # noqa: T201 - the figures are the point
    record_property(f"{kind}: bytes on the wire / trajectory, turns of {size} KiB", ratios)
    assert max(ratios.values()) <= MAX_RATIO
