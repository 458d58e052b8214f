"""Judge calls are recorded as they came, in the line too, and a record answers for a judge."""

import asyncio
import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from environments.common.judging import Judge, JudgeConfig
from environments.context import Context
from environments.response import Response
from environments.testing import ScriptedModel, response
from schemas.errors import JudgeError
from services.models.named import Answer
from services.verifier_worker.judge_calls import Recorder, Replay

ASKED = {"input": [{"role": "user", "content": "Equal?"}], "temperature": 0.0, "max_output_tokens": 50}


class Served:
    """A model as a worker has it: its responses say what became of the call."""

    def __init__(self, *texts):
        self.texts = iter(texts)

    async def create(self, params):
        body = response(next(self.texts), usage={"input_tokens": 3, "output_tokens": 1, "total_tokens": 4})
        return Answer(body, "http://judge/v1", "grader", 2, 0.12345)


def ask(models, *requests, name="judge"):
    async def all_of_them():
        return [await models[name].create(r) for r in requests]

    return asyncio.run(all_of_them())


def test_a_call_is_recorded_with_all_that_judging_again_needs():
    recorder = Recorder({"judge": Served("[[A=B]]")})
    (answer,) = ask(recorder, ASKED)
    (call,) = recorder.calls
    assert answer.joined_text() == "[[A=B]]"
    assert len(call.pop("prompt_hash")) == 64
    assert call == {
        "name": "judge",
        "params": {"temperature": 0.0, "max_output_tokens": 50},
        "endpoint": "http://judge/v1",
        "model": "grader",
        "tries": 2,
        "latency_s": 0.123,
        "reused": False,
        "usage": {"input_tokens": 3, "output_tokens": 1, "total_tokens": 4},
        "response": answer.body,
    }
    assert json.loads(json.dumps(recorder.calls)) == recorder.calls


def test_a_failed_call_is_recorded_and_stays_failed():
    ticks = iter([1.0, 3.5])
    recorder = Recorder({"judge": ScriptedModel(JudgeError("503"))}, now=lambda: next(ticks))
    with pytest.raises(JudgeError):
        ask(recorder, ASKED)
    assert (recorder.calls[0]["error"], recorder.calls[0]["latency_s"]) == ("JudgeError: 503", 2.5)
    assert "response" not in recorder.calls[0]


def test_calls_that_run_together_stand_in_the_order_of_their_beginning_with_their_purpose():
    gate = asyncio.Event()

    class Overtaken:
        async def create(self, params):
            if "first" in params["input"][0]["content"]:
                await gate.wait()
            gate.set()
            return Response(response("x"))

    async def both():
        recorder, judge = Recorder({"judge": Overtaken()}), Judge(JudgeConfig())
        context = Context(models=recorder)
        await asyncio.gather(*(judge.ask(context, p, purpose=p) for p in ("first", "second")))
        return [call["purpose"] for call in recorder.calls]

    assert asyncio.run(both()) == ["first", "second"]


def test_a_model_that_is_not_there_is_not_recorded():
    recorder = Recorder({})
    assert recorder.get("judge") is None
    assert recorder.calls == []


# --- answering from a record ----------------------------------------------------------------------------------------


def record_of(*requests, texts="abc", name="judge"):
    recorder = Recorder({name: Served(*texts)})
    ask(recorder, *requests, name=name)
    return json.loads(json.dumps(recorder.calls))


def test_a_record_answers_the_same_calls_in_order_and_others_go_on():
    other = {**ASKED, "input": "else"}
    record = record_of(ASKED, ASKED, other)
    judge = ScriptedModel("new")
    replay = Replay(record, {"judge": judge})
    answers = ask(replay, other, ASKED, ASKED, ASKED)
    assert [a.joined_text() for a in answers] == ["c", "a", "b", "new"]
    assert judge.requests == [ASKED]
    assert (answers[0].reused, answers[0].endpoint, answers[0].tries) == (True, "http://judge/v1", 2)


@pytest.mark.parametrize(
    "change",
    [
        {"temperature": 0.5},
        {"max_output_tokens": None},
        {"input": [{"role": "user", "content": "equal?"}]},
        {"instructions": "Be strict."},
        {"metadata": {"answer": "1"}},
    ],
)
def test_another_prompt_or_other_parameters_are_another_call(change):
    replay = Replay(record_of(ASKED), {"judge": ScriptedModel("new")})
    assert ask(replay, {**ASKED, **change})[0].joined_text() == "new"


def test_another_model_is_another_call_and_a_recorded_one_needs_no_model():
    record = record_of(ASKED)
    assert ask(Replay(record, {"genrm": ScriptedModel("new")}), ASKED, name="genrm")[0].joined_text() == "new"
    assert ask(Replay(record, {}), ASKED)[0].joined_text() == "a"
    assert Replay(record, {}).get("genrm") is None


def test_failed_calls_of_a_record_are_made_again():
    recorder = Recorder({"judge": ScriptedModel(JudgeError("503"))})
    with pytest.raises(JudgeError):
        ask(recorder, ASKED)
    assert ask(Replay(recorder.calls, {"judge": ScriptedModel("new")}), ASKED)[0].joined_text() == "new"


def test_recording_a_replay_tells_the_first_call_and_that_it_was_reused():
    first = record_of(ASKED)
    recorder = Recorder(Replay(first, {}))
    ask(recorder, ASKED)
    assert recorder.calls == [{**first[0], "reused": True}]


@given(
    st.lists(
        st.one_of(st.none(), st.integers(), st.dictionaries(st.sampled_from(["name", "response", "prompt_hash"]), st.text()))
    )
)
def test_a_record_that_is_none_answers_nothing(record):
    assert ask(Replay(record, {"judge": ScriptedModel("new")}), ASKED)[0].joined_text() == "new"


@given(st.recursive(st.text() | st.none() | st.integers(), lambda v: st.lists(v) | st.dictionaries(st.text(), v)))
def test_any_prompt_has_the_same_hash_after_a_trip_through_json(prompt):
    request = {"input": prompt}
    record = record_of(request)
    assert ask(Replay(record, {}), json.loads(json.dumps(request)))[0].joined_text() == "a"
