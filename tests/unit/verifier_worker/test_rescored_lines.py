"""Lines of a re-verification: what they say of their scoring, and judges' replies that are used again (platform.md C4, C5)."""

import dataclasses
import json

from support.pipeline import mcqa
from support.steps import REF, SOURCE, record, reply, said

from environments.verdict import Verdict
from schemas import codec, jsontext
from schemas.events import Payload, Trajectory
from services.verifier_worker.line import SCORING, result_line
from services.verifier_worker.step import VerifyStep

STAMP = {"id": "again", "verifier": "mcqa", "version": "1"}


def trajectory():
    row = mcqa(question="?", options=[{"A": "1"}, {"B": "2"}], expected_answer="B")
    payloads = Payload(jsontext.dumps(row)), Payload(jsontext.dumps(reply(said("\\boxed{B}"))))
    return Trajectory(REF, "mcqa", "mcqa_simple_agent", SOURCE, 0, 0, *payloads)


async def test_a_stamp_marks_every_line_and_no_other_does(bench):
    step = bench.verify()
    seen = []

    def stamp(event, source):
        seen.append((event.ref, source.offset))
        return {SCORING: STAMP}

    marked = VerifyStep(dataclasses.replace(step._tools, stamp=stamp))
    (plain,), (line,) = [await s(record("trajectories", codec.encode(trajectory()), offset=9)) for s in (step, marked)]
    assert SCORING not in json.loads(plain.value)
    assert json.loads(line.value) == {**json.loads(plain.value), SCORING: STAMP}
    assert seen == [(REF, 9)]


def test_a_row_that_was_a_rescored_line_does_not_pass_its_stamp_on():
    row = {"responses_create_params": {"input": "?"}, SCORING: STAMP, "kept": 1}
    line = json.loads(result_line(REF, "a", row, b"{}", Verdict(1.0)))
    assert SCORING not in line
    assert line["kept"] == 1
