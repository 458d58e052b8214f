"""aviary: what the cases do not show: the calculator's limits, pages, data files, hostile text."""

from __future__ import annotations

import json
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

import environments.aviary
from environments.agents.playing import play
from environments.aviary import wikipedia
from environments.aviary.calculator import MAX_CHARS, calculate
from environments.aviary.dataset import target_of
from environments.aviary.environment import Aviary, AviaryConfig
from environments.aviary.gsm8k import is_right
from environments.aviary.hotpotqa import normalised
from environments.context import Context
from environments.registry import Registry
from environments.testing import EnvironmentHarness, function_call, response
from schemas.errors import DataError, InfrastructureError

ROWS = [
    json.loads(line)
    for line in Path(environments.aviary.__file__).with_name("data").joinpath("example.jsonl").read_text("utf-8").splitlines()
]
MEGABYTE = 1_000_000


class Web:
    """Pages by address; `asked` are the addresses in order."""

    def __init__(self, pages: Mapping[str, str]) -> None:
        self.pages = {wikipedia.address(k): v for k, v in pages.items()}
        self.asked: list[str] = []

    async def get(self, url: str, *, timeout_s: float) -> str:
        self.asked.append(url)
        if url not in self.pages:
            raise InfrastructureError("en.wikipedia.org could not be read: HTTP 429")
        return self.pages[url]


def harness(
    kind: str = "gsm8k", pages: Mapping[str, str] | None = None, row: Mapping[str, Any] | None = None, **config: Any
) -> EnvironmentHarness:
    context = Context(rollout_id="3-1", pages_client=Web(pages or {}))
    made = EnvironmentHarness(Aviary(AviaryConfig(kind=kind, **config)), context=context)
    made.seed(row or {"responses_create_params": {"input": []}, "task_idx": 4, "question": "How many?", "answer": "7"})
    return made


def call(made: EnvironmentHarness, name: str, *calls: Any, **arguments: Any) -> str:
    move = made.respond(response(function_call(name, json.dumps(arguments))))
    (item,) = move.items
    return str(item["output"])


@pytest.mark.parametrize("row", ROWS, ids=lambda r: f"{r['agent_ref']['name']}-{r['task_idx']}")
def test_the_examples_are_right_when_their_answer_is_submitted(row: dict[str, Any]) -> None:
    binding = Registry.load().binding(None, row["agent_ref"]["name"])
    made = EnvironmentHarness(binding)
    seed = made.seed(row)
    assert row["question"] in seed.items[0]["content"]
    final = play(binding.agent, made, response(function_call("submit_answer", json.dumps({"answer": row["answer"]}))))
    assert made.verify(final).reward == 1.0
    assert (final["group_id"], final["contains_transitions"]) == (str(row["task_idx"]), True)
    assert [i["type"] for i in final["output"][-1]] == ["message", "function_call", "function_call_output"]


@pytest.mark.parametrize(("text", "value"), [("72", 72.0), ("so 3*4\n#### 1,234", 1234.0), (3.5, 3.5), ("#### -5 ", -5.0)])
def test_answers_of_the_data_set(text: Any, value: float) -> None:
    assert target_of(text) == value


def test_an_answer_without_a_number_refuses_the_row() -> None:
    with pytest.raises(DataError, match="no number"):
        harness(row={"responses_create_params": {"input": []}, "task_idx": 0, "question": "?", "answer": "many"})


def test_rows_with_a_number_alone_are_looked_up_in_the_file(tmp_path: Path) -> None:
    file = tmp_path / "train.jsonl"
    file.write_text("".join(json.dumps({"question": f"Q{i}", "answer": f"x #### {i}"}) + "\n" for i in range(11)), "utf-8")
    row = {"responses_create_params": {"input": []}, "task_idx": 1}
    for split, asked, right in (("train", "Q2", "2"), ("val", "Q5", "5")):
        made = harness(row=row, dataset=str(file), split=split)
        assert made.seeded.items[0]["content"] == asked
        assert call(made, "submit_answer", answer=right) == "True"
    assert harness("hotpotqa", row=row, dataset=str(file)).seeded.items[0]["content"] == "Question: Q1"
    with pytest.raises(DataError, match="8 questions"):
        harness(row={**row, "task_idx": 8}, dataset=str(file))
    with pytest.raises(DataError, match="config `dataset`"):
        harness(row=row, dataset=str(tmp_path / "none.jsonl"))
    with pytest.raises(DataError, match="no question and answer"):
        harness(row=row)


@pytest.mark.parametrize(
    "expr",
    [
        "9**9**9", "2**65536", "-2**99999", "10**-99999999", "9" * 4000 + "**9", "(" * 3000 + "1", "-" * 9000 + "1", "1+" * 4999 + "1",
        "2**60000*2**60000", "max(" * 1000 + "1" + ")" * 1000, "1e308*10", "(-8)**0.5", "'a'*9", "__import__('os')", "abs.__class__", "[1]*9",
        "sum(1, 2)", "round(1, ndigits=2)", "lambda: 1", "1 if 1 else 2", "x := 1", "", "1 << 99", "max", "0x" + "f" * 9000, "9" * 9999,
    ],
)  # fmt: skip
def test_the_calculator_refuses_in_no_time(expr: str) -> None:
    started = time.process_time()
    made = harness()
    move = made.respond(response(function_call("calculator", json.dumps({"expr": expr}))))
    assert time.process_time() - started < 1.0
    if expr not in ("1+" * 4999 + "1", "max(" * 1000 + "1" + ")" * 1000, "10**-99999999"):
        assert move.done
        assert move.items[0]["output"].startswith("Error using calculator: ")
        assert made.state.reward == -1.0


@pytest.mark.parametrize("expr", ["9" * 64 + ("*" + "9" * 64) * 150, "2**60000//3*3%7" + "+2**60000//3%5" * 600])
def test_the_largest_expressions_are_bounded_in_time(expr: str) -> None:
    assert len(expr) <= MAX_CHARS
    started = time.process_time()
    calculate_or_error(expr)
    assert time.process_time() - started < 2.0


def calculate_or_error(expr: str) -> str:
    try:
        return calculate(expr)
    except Exception as e:
        return repr(e)


NUMBERS = st.integers(0, 99) | st.floats(0, 99, allow_nan=False).map(lambda x: round(x, 3))
EXPRESSIONS = st.recursive(
    NUMBERS.map(str),
    lambda inner: (
        st.builds("({} {} {})".format, inner, st.sampled_from(["+", "-", "*", "/", "//", "%"]), inner)
        | inner.map("-{}".format)
        | inner.map("abs({})".format)
    ),
    max_leaves=8,
)


@given(EXPRESSIONS)
def test_the_calculator_agrees_with_python(expr: str) -> None:
    try:
        value = eval(expr)  # made by this test
    except ZeroDivisionError:
        assert "Division by zero" in calculate_or_error(expr)
    else:
        assert calculate(expr) == str(int(value) if int(value) == value else value)


@given(st.text(max_size=200))
def test_the_calculator_answers_any_text(expr: str) -> None:
    made = harness()
    move = made.respond(response(function_call("calculator", json.dumps({"expr": expr}))))
    assert isinstance(move.items[0]["output"], str)


@given(st.floats(allow_nan=False, allow_infinity=False, width=32))
def test_an_answer_is_right_for_itself_and_wrong_far_away(target: float) -> None:
    assert is_right(target, target)
    assert not is_right(target + 1 + abs(target) / 100, target)


@pytest.mark.parametrize("answer", [None, [], {"a": 1}, "9" * MEGABYTE, 10**400, "NaN()", "\ud800"])
def test_answers_that_are_no_numbers_cost_one(answer: Any) -> None:
    made = harness()
    text = call(made, "submit_answer", answer=answer)
    assert text == "False"
    assert made.state.reward in (-1.0, 0.0)
    assert made.state.reward == (0.0 if answer == "9" * MEGABYTE else -1.0)  # a long number is a number: infinity


def test_wrong_names_of_arguments_are_told_and_may_cost() -> None:
    made = harness(misfit_reward=-1.0)
    assert "expr is missing, expression is unknown" in call(made, "calculator", expression="1")
    move = made.respond(response(function_call("calculator", "[1]"), function_call("submit_answer", '{"answer": 7}')))
    assert [i["output"] for i in move.items] == ["The arguments of calculator must be an object with expr.", "True"]
    assert (made.state.reward, move.done) == (-1.0, True)
    assert "entity is missing" in call(harness("hotpotqa"), "search")


def test_nothing_is_executed_beside_arguments_that_are_no_json() -> None:
    made = harness()
    move = made.respond(response(function_call("submit_answer", '{"answer": 7}'), function_call("calculator", "{")))
    assert (move.done, made.state.reward, len(move.items)) == (False, 0.0, 1)


PAGE = "<p>One two three. Four five six.</p><ul><li>alpha beta Gamma</li></ul><p>short line</p>"


def test_a_look_up_on_another_worker_goes_on_where_the_first_one_was() -> None:
    made = harness("hotpotqa", {"Mont Blanc": PAGE})
    assert call(made, "search", entity="Mont Blanc") == "One two three. Four five six.. alpha beta Gamma."
    assert call(made, "lookup", keyword="GAMMA") == "(Result 1 / 1) alpha beta Gamma"
    made.context = Context(rollout_id="3-1", pages_client=Web({"Mont Blanc": PAGE}))
    assert call(made, "lookup", keyword="GAMMA") == "No more results."
    assert call(made, "lookup", keyword="four") == "(Result 1 / 1) One two three. Four five six."
    assert len(made.state_json or "") < 300


def test_a_page_of_meanings_only_is_not_searched_for_ever() -> None:
    nested = {"X": "", "[X]": "", "[[X]]": "", "[[[X]]]": "", "[[[[X]]]]": ""}
    made = harness("hotpotqa", dict.fromkeys(nested, "<p>X may refer to: many things</p>"))
    assert call(made, "search", entity="X") == "X may refer to: many things."
    assert len(made.context.pages.asked) == 4  # type: ignore[attr-defined]


def test_wikipedia_that_cannot_be_reached_is_a_failure_of_infrastructure() -> None:
    with pytest.raises(InfrastructureError, match="HTTP 429"):
        call(harness("hotpotqa"), "search", entity="X")
    made = EnvironmentHarness(Aviary(AviaryConfig(kind="hotpotqa")))
    made.seed({"responses_create_params": {"input": []}, "task_idx": 4, "question": "How many?", "answer": "7"})
    with pytest.raises(InfrastructureError, match="web pages"):
        call(made, "search", entity="X")


@given(st.text())
def test_any_search_text_stays_within_its_parameter(entity: str) -> None:
    url = wikipedia.address(entity + "\ud800")
    head = "https://en.wikipedia.org/w/index.php?search="
    assert url.startswith(head)
    assert not set(url[len(head) :]) & set('&#?/ \n\r"<>')


@given(st.text(), st.text())
def test_normalising_is_stable_and_blind_to_case(a: str, b: str) -> None:
    assert "  " not in normalised(a)
    assert normalised(f"{a} {b}") == f"{normalised(a)} {normalised(b)}".strip()
    assert normalised(f"The {b}!") == normalised(f"a  {b}")


@pytest.mark.parametrize("answer", ["the " * 250_000, "a" * MEGABYTE, "." * MEGABYTE, " " * MEGABYTE, "é" * MEGABYTE])
def test_a_megabyte_of_answer_takes_well_under_a_second(answer: str) -> None:
    made = harness("hotpotqa")
    started = time.process_time()
    made.respond(response(function_call("submit_answer", json.dumps({"answer": answer}))))
    made.verify(response(answer))
    assert time.process_time() - started < 0.8


def test_many_calls_in_one_turn_take_well_under_a_second() -> None:
    calls = [function_call("calculator", '{"expr": "1+1"}') for _ in range(2_000)]
    started = time.process_time()
    made = harness()
    assert len(made.respond(response(*calls)).items) == 2_000
    assert time.process_time() - started < 0.8
