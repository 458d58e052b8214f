"""Re-verification from the log (platform.md C5) on a real Kafka: slices, scorings of their own, and their differences."""

from __future__ import annotations

import asyncio
import dataclasses
import json
import os
import sys
from asyncio.subprocess import PIPE
from datetime import UTC, datetime

import pytest
from aiokafka import AIOKafkaProducer
from support.pipeline import registry

from environments.registry import Registry
from rollstream.ledger import read_ledger
from rollstream.reverify.export import export
from rollstream.reverify.guard import ReverifyError
from rollstream.reverify.replay import LogRequest, replay
from rollstream.reverify.slice import Slice
from rollstream.settings.model import Claims, Settings, TopicNames
from schemas import codec, headers, jsontext
from schemas.errors import FailureClass
from schemas.events import Failure, Payload, Trajectory
from schemas.identity import Place, RolloutRef
from schemas.topics import FAILURES, SCORED, TRAJECTORIES
from services.runtime.admin import committed, end_offsets, partitions_of
from services.runtime.claims import ClaimStore

pytestmark = pytest.mark.integration

COUNT = 40


def said(text, model="policy-a"):
    part = {"type": "output_text", "text": text, "annotations": []}
    message = {"type": "message", "id": "m", "role": "assistant", "status": "completed", "content": [part]}
    return {"id": "resp_1", "object": "response", "model": model, "output": [message], "usage": None}


def question(number):
    params = {"input": [{"role": "user", "content": f"{number}. A) 3 B) 4"}]}
    own = {"question": "2+2?", "options": [{"A": "3"}, {"B": "4"}], "expected_answer": "B"}
    return {"responses_create_params": params, "agent_ref": {"name": "mcqa_simple_agent"}, **own}


def trajectory(number, *, run="night", answer="B", model="policy-a", **changes):
    ref = RolloutRef(run, f"t{number}", number, 0)
    row, response = jsontext.dumps(question(number)), jsontext.dumps(said(f"\\boxed{{{answer}}}", model))
    event = Trajectory(ref, "mcqa", "mcqa_simple_agent", Place("p", 0, number), 0, 0, Payload(row), Payload(response))
    return dataclasses.replace(event, **changes)


def grouped(index, *, run="night", size=3):
    row = {"responses_create_params": {"input": "Go."}, "agent_ref": {"name": "ranked_agent"}}
    ref = RolloutRef(run, "g", 900, index, group_size=size)
    response = jsontext.dumps(said("x" * (index + 1)))
    return Trajectory(ref, "ranked", "ranked_agent", Place("p", 0, 0), 0, 0, Payload(jsontext.dumps(row)), Payload(response))


def counting(state):
    """A rollout of an environment whose state a stored line does not hold, and the log does."""
    row = {"responses_create_params": {"input": "Count."}, "initial_count": 0, "expected_count": 3}
    row["agent_ref"] = {"name": "example_session_state_mgmt_simple_agent"}
    ref = RolloutRef("night", "s", 950, 0)
    variant = "example_session_state_mgmt"
    payloads = Payload(jsontext.dumps(row)), Payload(jsontext.dumps(said("done")))
    return Trajectory(ref, variant, variant, Place("p", 0, 0), 0, 0, *payloads, env_state=jsontext.dumps(state))


class Log:
    """The topics of a pipeline that nobody works on."""

    def __init__(self, kafka, topics, folder):
        self.kafka, self.topics = kafka, topics
        self.claims = ClaimStore(str(folder / "claims"))
        names = TopicNames(prefix=topics.prefix, partitions=topics.partitions)
        self.settings = Settings(topics=names, claims=Claims(url=str(folder / "claims")))
        self.registry = registry()

    async def put(self, topic, *events, at=None):
        """Write events as the workers do; the places where they are."""
        producer = AIOKafkaProducer(**self.kafka.kwargs())
        await producer.start()
        name, places = self.topics.name(topic), []
        for event in events:
            where = event.ref.task_index % self.topics.partitions
            ref = event.ref
            sent = await producer.send_and_wait(
                name, codec.encode(event), key=ref.task_key, headers=headers.of(ref), partition=where, timestamp_ms=at
            )
            places.append(Place(name, sent.partition, sent.offset))
        await producer.stop()
        return places

    async def replay(self, scoring, wanted=None, **options):
        request = LogRequest(scoring, wanted or Slice(), **options)
        done = await replay(request, self.settings, self.kafka, self.registry, self.claims, lambda _done, _all: None)
        return request, done

    async def lines(self, request, done, folder):
        """The scoring's lines and failures, by file."""
        found = await export(done, request, folder, self.kafka, self.claims, self.registry)
        read = {p.results.stem: [json.loads(x) for x in p.results.read_text().splitlines()] for p in found}
        failed = [json.loads(x) for p in found for x in p.failures.read_text().splitlines()]
        return read, failed


@pytest.fixture
def log(kafka, topics, tmp_path):
    return Log(kafka, topics, tmp_path)


async def test_a_slice_becomes_a_scoring_of_its_own_and_the_live_topics_stay_as_they_are(log, tmp_path):
    places = await log.put(TRAJECTORIES, *(trajectory(i, answer="AB"[i % 2]) for i in range(COUNT)))
    await log.put(TRAJECTORIES, *(trajectory(i, run="other") for i in range(5)))
    before = await end_offsets(log.kafka, [log.topics.name(SCORED), log.topics.name(FAILURES)])
    request, done = await log.replay("one", Slice(run="night"))
    read, failed = await log.lines(request, done, tmp_path / "out")
    assert not failed
    lines = sorted(read["night"], key=lambda line: line["_ng_task_index"])
    assert read.keys() == {"night"}
    assert [line["reward"] for line in lines] == [float(i % 2) for i in range(COUNT)]
    stamp = {"id": "one", "verifier": "mcqa", "version": "1", "environment": "mcqa", "run_id": "night"}
    assert [line["_ng_scoring"] for line in lines] == [{**stamp, "source": str(place)} for place in places]
    assert await end_offsets(log.kafka, [log.topics.name(SCORED), log.topics.name(FAILURES)]) == before
    group = log.topics.group("verifier")
    assert not await committed(log.kafka, group, await partitions_of(log.kafka, [log.topics.name(TRAJECTORIES)]))
    ledger = await read_ledger(log.kafka, log.topics, run="night")
    assert ledger.total.scored == 0
    with pytest.raises(ReverifyError, match=r"scoring one exists: --resume"):
        await log.replay("one")
    again, done = await log.replay("one", Slice(run="night"), resume=True)
    read, _ = await log.lines(again, done, tmp_path / "again")
    assert sorted(read["night"], key=lambda line: line["_ng_task_index"]) == lines


async def test_time_model_environment_and_failure_class_narrow_a_slice(log, tmp_path):
    """C5: any time range, environment, policy or failure class."""
    early, late = (int(datetime(2026, 8, day, tzinfo=UTC).timestamp() * 1000) for day in (10, 20))
    await log.put(TRAJECTORIES, *(trajectory(i) for i in range(4)), at=early)
    places = await log.put(TRAJECTORIES, *(trajectory(i, model="policy-b") for i in range(4, 8)), at=late)
    await log.put(TRAJECTORIES, *(grouped(i) for i in range(3)), at=late)
    blame = Failure("night", FailureClass.JUDGE, "failed", "verifier", "JudgeError", "no answer", retryable=True, failed_ms=0)
    await log.put(FAILURES, *(dataclasses.replace(blame, ref=trajectory(i).ref, place=places[i - 4]) for i in (5, 6)))
    middle = datetime(2026, 8, 15, tzinfo=UTC)
    wanted = {
        "before": (Slice(until=middle), {0, 1, 2, 3}),
        "after": (Slice(since=middle, environment="mcqa"), {4, 5, 6, 7}),
        "policy": (Slice(model="policy-b"), {4, 5, 6, 7}),
        "judged": (Slice(failure_class=FailureClass.JUDGE), {5, 6}),
        "groups": (Slice(environment="ranked"), {900}),
    }
    for name, (part, tasks) in wanted.items():
        request, done = await log.replay(name, part)
        read, failed = await log.lines(request, done, tmp_path / name)
        assert not failed
        assert {line["_ng_task_index"] for line in read["night"]} == tasks, name
    assert sorted(line["reward"] for line in read["night"]) == [0.0, 1.0, 2.0]
    with pytest.raises(ReverifyError, match="no trajectory of the log is in the slice"):
        await log.replay("nothing", Slice(run="unheard-of"))


async def test_groups_are_whole_or_say_what_they_lack_and_states_come_from_the_log(log, tmp_path):
    """C5: what a session-state verifier needs was recorded with the trajectory. Nobody waits for members that never come."""
    await log.put(TRAJECTORIES, grouped(0), grouped(2), counting({"counter": 3}))
    request, done = await log.replay("states")
    read, failed = await log.lines(request, done, tmp_path / "out")
    assert not failed
    by_task = {}
    for line in read["night"]:
        by_task.setdefault(line["_ng_task_index"], []).append(line)
    assert [line["reward"] for line in by_task[900]] == [0.0, 1.0]
    assert [line["_ng_group"]["scored"] for line in by_task[900]] == [2, 2]
    assert [line["reward"] for line in by_task[950]] == [1.0]


async def test_what_cannot_be_verified_again_is_refused_before_any_work(log, tmp_path):
    """C3: `unknown` stops the command; with force its name says what it is."""
    row = {"responses_create_params": {"input": "Go."}, "agent_ref": {"name": "faulty_agent"}}
    event = dataclasses.replace(trajectory(0), environment="faulty", agent="faulty_agent", row=Payload(jsontext.dumps(row)))
    await log.put(TRAJECTORIES, event)
    with pytest.raises(ReverifyError, match=r"faulty \(mode unknown: .*\)\. --force"):
        await log.replay("bold")
    assert not await end_offsets(log.kafka, [f"{log.topics.name(SCORED)}.bold"])
    request, done = await log.replay("bold", force=True)
    assert done.scoring == "unsafe_bold"
    read, _ = await log.lines(request, done, tmp_path / "out.jsonl")
    assert list(read) == ["unsafe_out"]


async def test_the_commands(log, kafka, topics, tmp_path):
    """`reverify --log` writes topics and files; `diff` compares them with a file and with each other."""
    await log.put(TRAJECTORIES, *(trajectory(i, answer="AB"[i % 2]) for i in range(6)))
    clean = {k: v for k, v in os.environ.items() if not k.startswith("ROLLSTREAM_") or k == "ROLLSTREAM_CACHE_DIR"}
    clean["ROLLSTREAM_CLAIMS__URL"] = str(tmp_path / "claims")

    async def cli(*words):
        where = ["--bootstrap-servers", kafka.bootstrap_servers, "--prefix", topics.prefix]
        program = [sys.executable, "-c", "from rollstream.cli import main; main()", *words, *where]
        process = await asyncio.create_subprocess_exec(*program, stdout=PIPE, stderr=PIPE, cwd=tmp_path, env=clean)
        async with asyncio.timeout(50):
            out, err = await process.communicate()
        return process.returncode, out.decode(), err.decode()

    code, out, err = await cli("reverify", "--log", "--run", "night", "--scoring", "a", "-o", "a.jsonl", "--json")
    assert code == 0, err
    said = json.loads(out)
    assert (said["scoring"], said["scored"], said["failed"]) == ("a", 6, 0)
    assert said["environments"]["mcqa"] == {"verifier": "mcqa 1", "scored": 6, "failed": 0, "mean_reward": 0.5}
    changed = [json.loads(x) for x in (tmp_path / "a.jsonl").read_text().splitlines()]
    changed[0]["reward"] += 1.0
    (tmp_path / "b.jsonl").write_text("".join(json.dumps(x) + "\n" for x in changed))
    code, out, err = await cli("diff", "scoring:a", "b.jsonl", "-o", "d.jsonl", "--json")
    assert code == 0, err
    totals = json.loads(out)["environments"]["mcqa"]
    assert (totals["compared"], totals["same"], totals["up"]) == (6, 5, 1)
    (line,) = [json.loads(x) for x in (tmp_path / "d.jsonl").read_text().splitlines()]
    assert (line["direction"], line["delta"], line["run_id"]) == ("up", 1.0, "")
    code, out, err = await cli("reverify", "--log", "--policy-version", "v7")
    assert code == 2
    assert "carry no policy version" in err
    assert isinstance(log.registry, Registry)
