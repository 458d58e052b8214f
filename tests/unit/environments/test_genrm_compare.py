"""genrm_compare: what the page says and the cases do not show; the reading of replies against the rule spelled out."""

from __future__ import annotations

import asyncio
import itertools
import json
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from environments.common.judging import purpose
from environments.context import Context
from environments.dispatch import run_verify_group
from environments.environment import Member
from environments.genrm_compare import comparing, reading
from environments.genrm_compare.comparing import Answer, Comparison, markup_density, pairs_of, rewards
from environments.genrm_compare.environment import GenrmCompare, GenrmConfig, GenrmTask, answer_of
from environments.genrm_compare.reading import balanced_objects, verdict_in
from environments.genrm_compare.talk import as_text, conversation_of
from environments.registry import Registry
from environments.response import Response
from environments.testing import EnvironmentHarness, ScriptedModel, function_call, response
from rollstream.runfiles.aggregate import aggregate
from schemas.errors import JudgeError
from services.sink.paths import RunPaths

EXAMPLES = Path(comparing.__file__).parent / "data" / "example.jsonl"
ROW = {"responses_create_params": {"input": [{"role": "user", "content": "Why?"}]}}
SCORES = '{"score_1": 4, "score_2": 2, "ranking": 2}'


class ByPair:
    """A judge that says for each pair what it is told to, after a time that differs from pair to pair."""

    def __init__(self, replies: Mapping[str, str], default: str = SCORES) -> None:
        self.replies, self.default, self.asked, self.requests = replies, default, [], []

    async def create(self, params: Mapping[str, Any]) -> Response:
        self.asked.append(purpose())
        self.requests.append(params)
        await asyncio.sleep(0.001 * (7 - len(self.asked)))
        return Response(response(self.replies.get(purpose(), self.default)))


def environment(**config: Any) -> GenrmCompare:
    return GenrmCompare(GenrmConfig(**{"num_rollouts_per_prompt": 4, "genrm_parse_retry_sleep_s": 0, **config}))


def scored(judge: Any, *answers: str, rows: Any = None, indices: Any = None, **config: Any) -> list[Any]:
    rows = rows or [ROW] * len(answers)
    indices = indices or range(len(answers))
    members = [
        Member(GenrmTask.model_validate(row), Response(response(a)), None, i)
        for row, a, i in zip(rows, answers, indices, strict=True)
    ]
    return asyncio.run(run_verify_group(environment(**config), members, Context(models={"genrm": judge})))


# --- which are compared ---------------------------------------------------------------------------------------------


@given(st.integers(0, 30))
def test_each_answer_has_two_neighbours_in_the_circle_and_meets_all_others_otherwise(size):
    circle, every = pairs_of(size, "circular"), pairs_of(size, "all_pairs")
    assert len(circle) == (size if size > 1 else 0)
    assert all(sum(i in pair for pair in circle) == 2 for i in range(size if size > 1 else 0))
    assert every == list(itertools.combinations(range(size), 2))


def test_members_with_another_prompt_or_principle_are_compared_only_with_their_like():
    other = {"responses_create_params": {"input": [{"role": "user", "content": "What?"}]}}
    judge = ByPair({})
    found = scored(judge, "a", "b", "c", "d", "e", rows=[ROW, other, ROW, {**ROW, "principle": "short"}, other])
    assert [v.reward for v in found] == [3.0, 3.0, 3.0, 3.0, 3.0]
    assert judge.asked == ["0,1", "1,0"] * 2


def test_the_circle_may_follow_the_rollouts_instead_of_their_arrival():
    judge = ByPair({}, default='{"score_1": 5, "score_2": 1, "ranking": 1}')
    for order, expected in (("arrival", "third"), ("rollout_index", "first")):
        judge.requests.clear()
        scored(judge, "third", "first", "second", indices=[2, 0, 1], order=order, judge_input="metadata")
        assert judge.requests[0]["metadata"]["response_1"] == expected


def test_rewards_come_back_in_the_order_of_the_members():
    judge = ByPair({"0,1": '{"score_1": 5, "score_2": 1, "ranking": 1}'}, '{"score_1": 3, "score_2": 3, "ranking": 3.5}')
    found = scored(judge, "b", "a", indices=[1, 0], order="rollout_index", comparison_strategy="all_pairs")
    assert [v.reward for v in found] == [1.0, 5.0]


def test_an_incomplete_group_is_compared_as_far_as_it_is_there():
    judge = ByPair({})
    assert [v.reward for v in scored(judge, "a", "b", "c", num_rollouts_per_prompt=16)] == [3.0, 3.0, 3.0]
    assert len(judge.asked) == 3
    assert [v.reward for v in scored(judge, "alone", num_rollouts_per_prompt=16)] == [3.0]
    harness = EnvironmentHarness(environment(), context=Context(models={"genrm": judge}))
    harness.seed(ROW)
    assert harness.verify(response("alone")).reward == 3.0
    assert len(judge.asked) == 3


# --- what the judge is asked ------------------------------------------------------------------------------------------


def asked(judge_input: str, **config: Any) -> Mapping[str, Any]:
    judge = ByPair({})
    row = {**ROW, "principle": "Be brief."}
    scored(judge, "first {x}", " ", rows=[row, row], judge_input=judge_input, comparison_strategy="all_pairs", **config)
    return judge.requests[0]


def test_a_chat_model_is_asked_in_words():
    request = asked("prompt", use_principle=True, genrm_responses_create_params={"temperature": 0.6})
    (message,) = request["input"]
    for text in ("[user]\nWhy?", "first {x}", "<response_2>\nNone\n", "Be brief.", '{"score_1": 3'):
        assert text in message["content"]
    assert request["temperature"] == 0.6
    assert "metadata" not in request


def test_without_use_principle_the_default_one_is_said_in_words_and_none_is_sent():
    assert "Be brief." not in asked("prompt")["input"][0]["content"]
    assert "impartial" in asked("prompt")["input"][0]["content"]
    assert [m["role"] for m in asked("roles")["input"]] == ["user", "response_1", "response_2"]
    assert asked("metadata")["metadata"] == {"response_1": "first {x}", "response_2": "None"}


def test_a_genrm_is_asked_by_roles_or_by_metadata():
    roles = asked("roles", use_principle=True)["input"]
    assert [(m["role"], m["content"]) for m in roles[1:]] == [
        ("principle", "Be brief."),
        ("response_1", "first {x}"),
        ("response_2", "None"),
    ]
    metadata = asked("metadata", use_principle=True, default_principle="unused")
    assert metadata["metadata"] == {"principle": "Be brief.", "response_1": "first {x}", "response_2": "None"}
    assert metadata["input"] == [{"role": "user", "content": "Why?"}]


def test_every_form_of_input_reaches_the_judge_as_text():
    items = [
        {"role": "user", "content": [{"type": "input_text", "text": "one "}, {"type": "input_text", "text": "two"}]},
        {"type": "reasoning", "summary": [{"type": "summary_text", "text": "secret"}]},
        function_call("find", '{"q": 1}'),
        {"type": "function_call_output", "call_id": "call_1", "output": "found"},
        {"type": "message", "role": "wizard", "content": "hm"},
        "garbage",
        {"type": "unknown"},
    ]
    talk = conversation_of(items)
    assert [m["role"] for m in talk] == ["user", "assistant", "user", "user"]
    assert as_text(talk) == (
        '[user]\none two\n\n[assistant]\n(calls find with {"q": 1})\n\n[user]\n(result of the call) found\n\n[user]\nhm'
    )
    assert conversation_of("plain") == [{"role": "user", "content": "plain"}]
    assert conversation_of(None) == []


def test_an_answer_is_its_texts_and_the_length_of_its_summaries():
    summary = {"type": "reasoning", "summary": [{"text": " ab "}, {"text": "c "}, {"text": None}, 3]}
    found = answer_of(Response(response(summary, "one", "two")))
    assert found == Answer("onetwo", len("ab c"))


# --- what becomes of a call that failed -------------------------------------------------------------------------------


def test_a_failed_call_is_neutral_and_counted_in_the_lines():
    judge = ScriptedModel(JudgeError("503", detail="<html>"), SCORES, SCORES)
    found = scored(judge, "a", "b", "c")
    assert [v.fields.get("failed_comparisons") for v in found] == [1, 1, None]
    assert len(judge.requests) == 3


def test_neutral_rewards_are_told_beside_the_averages(tmp_path):
    paths = RunPaths.of(tmp_path / "r.jsonl")
    agent = {"agent_ref": {"name": "genrm_simple_agent"}, "_ng_task_index": 0, "reward": 3.0}
    lines = [{**agent, "_ng_rollout_index": i, **({"failed_comparisons": 2} if i else {})} for i in range(3)]
    paths.results.write_text("".join(f"{json.dumps(line)}\n" for line in lines), "utf-8")
    (found,) = aggregate(paths, Registry.load()).agents
    (note,) = found["notes"]
    assert note.startswith("2 of 3 rollouts have comparisons that the judge failed or that could not be read")
    assert note.endswith("; these count as 3 for both (field failed_comparisons)")
    assert GenrmCompare().notes([{"reward": 3.0}, {"failed_comparisons": None}]) == []


def test_an_error_that_came_as_json_is_tried_again():
    judge = ScriptedModel(JudgeError("500", detail='{"detail": "busy"}'), SCORES)
    found = scored(judge, "a", "b", comparison_strategy="all_pairs")
    assert [v.reward for v in found] == [4.0, 2.0]


def test_a_failed_call_fails_the_group_where_that_is_asked_for():
    with pytest.raises(JudgeError):
        scored(ScriptedModel(*[JudgeError("503")] * 3), "a", "b", "c", on_judge_failure="fail")


# --- the reading of replies -------------------------------------------------------------------------------------------


def spelled_out(text: str) -> list[str]:
    """Every brace tried by itself, to the end if need be."""
    found, at = [], 0
    while at < len(text):
        end = closes(text, at) if text[at] == "{" else None
        if end is None:
            at += 1
        else:
            found.append(text[at : end + 1])
            at = end + 1
    return found


def closes(text: str, at: int) -> int | None:
    depth, in_string, escaped = 0, False, False
    for i in range(at, len(text)):
        c = text[i]
        if in_string:
            in_string = escaped or c != '"'
            escaped = c == "\\" and not escaped
        elif c == '"':
            in_string = True
        elif c in "{}":
            depth += 1 if c == "{" else -1
            if not depth:
                return i
    return None


@given(st.lists(st.sampled_from(["{", "}", '"', "\\", "a", "\n", "é"]), max_size=24).map("".join))
def test_balanced_objects_are_those_of_the_rule(text):
    assert list(balanced_objects(text)) == spelled_out(text)


@given(st.text(max_size=300), st.sampled_from(["", "```json", "```JSON\n", "{", '{"overall": ']))
def test_any_text_is_read(text, before):
    found = verdict_in(before + text)
    assert found is None or set(found) <= set(reading.KEYS)


@given(st.text(max_size=60).filter(lambda t: "{" not in t and "`" not in t), st.text(alphabet='{}\\"x ', max_size=40))
def test_a_fenced_verdict_counts_whatever_is_around_it(before, after):
    assert verdict_in(f"{before}\n```json\n{SCORES}\n```\n{after}") == {"score_1": 4.0, "score_2": 2.0, "ranking": 2.0}


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ('{"score_1": true, "score_2": " 4e0 "}', {"score_1": 1.0, "score_2": 4.0}),
        ('{"score_1": null}', None),
        ('{"score_1": "good", "ranking": 2}', None),
        ('{"score_1": NaN}', None),
        ('{"score_1": 1e999}', None),
        ('{"score_1": "inf"}', None),
        ('{"score_1": [1]}', None),
        ('{"overall": {"ranking": 6}, "ranking": 1}', {"ranking": 6.0}),
        ('{"overall": 7, "ranking": 1}', {"ranking": 1.0}),
        ('{"overall": {}, "ranking": 1}', None),
        ('{ {"ranking": 1}', {"ranking": 1.0}),
        ('```json\n{"x": 1}\n```\n{"ranking": 5}', {"ranking": 5.0}),
        ('```json\nno\n```\n```Json {"ranking": 2} {"ranking": 3}```', {"ranking": 2.0}),
        ("", None),
    ],
)
def test_what_a_verdict_is(text, expected):
    assert verdict_in(text) == expected


@pytest.mark.parametrize(
    "piece", ["{", '{\\"', '{"', "}", '"', "\\", "{}", '{"score_1":1}', "```json", "```json{", "[", '{"a":', "`"]
)
def test_a_megabyte_from_the_judge_takes_seconds_at_most(piece):
    started = time.process_time()
    verdict_in("score_1" + piece * (1_000_000 // len(piece)) + "}")
    assert time.process_time() - started < 5


# --- what follows from it ---------------------------------------------------------------------------------------------

PIECES = ["# ", "- ", "1. ", "**", "__", "```", "\n", " ", "\U0001f600", "1", "漢", "*", "_", "#"]


@pytest.mark.parametrize("piece", PIECES)
def test_a_megabyte_from_the_policy_takes_seconds_at_most(piece):
    text = piece * (1_000_000 // len(piece)) + "x"
    started = time.process_time()
    found = scored(ByPair({}), text, "short", group_style_penalty_coeff=1.0, group_answer_length_penalty_coeff=1.0)
    assert time.process_time() - started < 5
    assert all(isinstance(v.reward, float) for v in found)


@pytest.mark.parametrize(
    ("text", "marks"),
    [
        ("# a", 1),
        ("####### a", 0),
        ("#a", 0),
        ("  - a\n\t2. b\n+ c\n*d", 3),
        ("**a** __b__ **c\n** ** __", 3),
        ("\U0001f600\u2600漢", 3),
        ("```\n# a\n``` # b", 0),
        ("```# a", 0),
        ("", 0),
    ],
)
def test_what_counts_as_markup(text, marks):
    length = len(text.replace("```\n# a\n```", "").strip())
    assert markup_density(text) == pytest.approx(marks / length if length else 0.0)


values = st.floats(-10, 10)
comparisons = st.lists(
    st.builds(Comparison, st.integers(0, 2), st.integers(0, 2), st.integers(0, 1), values, values, values), max_size=12
)


@given(comparisons, st.lists(st.text(max_size=12), min_size=3, max_size=3), st.randoms())
def test_rewards_are_finite_and_do_not_depend_on_which_comparison_ended_first(made, texts, rng):
    weights = GenrmConfig(reasoning_bonus=1, answer_bonus=1, group_answer_length_penalty_coeff=1, group_style_penalty_coeff=1)
    answers = [Answer(t, len(t) % 3) for t in texts]
    once = {(c.judge_idx, c.response_i, c.response_j): c for c in made}
    one = rewards(list(once.values()), answers, weights)
    other = rewards(rng.sample(list(once.values()), len(once)), answers, weights)
    assert one == other
    assert all(abs(r) < 100 for r in one)


@given(st.lists(st.text(max_size=20), min_size=2, max_size=6), st.floats(0.1, 5))
def test_penalties_are_centred_on_zero(texts, coefficient):
    answers = [Answer(t) for t in texts]
    found = rewards([], answers, GenrmConfig(group_answer_length_penalty_coeff=coefficient, default_score=0.0))
    assert sum(found) == pytest.approx(0, abs=1e-9)


# --- the package ------------------------------------------------------------------------------------------------------


def test_examples_are_rows_of_the_first_variant():
    rows = [json.loads(line) for line in EXAMPLES.read_text("utf-8").splitlines()]
    assert len(rows) >= 5
    binding = Registry.load().binding(None, "genrm_simple_agent")
    for row in rows:
        assert row["agent_ref"]["name"] == "genrm_simple_agent"
        harness = EnvironmentHarness(binding)
        harness.seed(row)
        assert harness.verify(response("x")).reward == 3.0


def test_the_variants_ask_as_they_say():
    registry = Registry.load()
    found = {
        v: registry.binding(v, None).environment
        for v in ("genrm_compare", "genrm_compare_reasoning_off", "genrm_compare_roles")
    }
    assert [e.config.judge_input for e in found.values()] == ["prompt", "prompt", "roles"]
    assert all(e.config.num_rollouts_per_prompt == 16 and e.scoring == "group" for e in found.values())
