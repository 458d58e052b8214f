"""One tool call becomes one reply that the model can read, or one `RolloutError`."""

from __future__ import annotations

import asyncio
import json
from typing import Annotated, Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import BaseModel, Field

from environments.dispatch import start_tool, start_verify_group
from environments.environment import Context, Environment, Member, Move, Response, Seed, State, Verdict
from environments.testing import EnvironmentHarness, response
from environments.tools import MAX_ERRORS, Text, ToolReply, tool
from schemas.errors import DataError, InfrastructureError, ToolError, VerifierError
from schemas.events import ToolCall

ROW = {"responses_create_params": {"input": "hello"}}


NO_OBJECT = (
    '{"detail":[{"type":"model_attributes_type","loc":[%s],"msg":"Input should be a valid dictionary or object '
    'to extract fields from","input":%s}]}'
)


class Log(State):
    seen: list[str] = Field(default_factory=list)


class Point(BaseModel):
    x: int
    y: int = 0


class Bench(Environment):
    State = Log

    @tool
    def note(self, text: str, state: Log) -> Text:
        """Keep a text."""
        state.seen.append(text)
        return Text(f"kept {text}")

    @tool
    async def later(self, n: int = 1) -> Point:
        await asyncio.sleep(0)
        return Point(x=n)

    @tool
    def nested(self, point: Point, table: dict[str, int] | None = None) -> int:
        return point.x

    @tool
    def total(self, values: list[int]) -> int:
        return sum(values)

    @tool
    def nothing(self) -> None:
        return None

    @tool
    def aliased(self, wanted: Annotated[str, Field(alias="state")], state: Log) -> str:
        return f"{wanted}{len(state.seen)}"

    @tool
    def broken(self) -> None:
        raise ValueError("no such city: 東京")

    @tool
    async def broken_later(self) -> None:
        await asyncio.sleep(0)
        raise ValueError("too late")

    @tool
    def invalid_inside(self) -> int:
        return Point.model_validate({"x": "not a number"}).x

    @tool
    def unwritable(self) -> object:
        return object()

    @tool
    def unreachable(self) -> None:
        raise InfrastructureError("the sandbox is gone")

    @tool
    def refused(self) -> ToolReply:
        return ToolReply("no", status=403)

    def verify(self, task: Any, response: Any, state: Any, context: Context) -> Any:
        return Verdict(len(state.seen))


class Talkative(Bench):
    tool_errors = "tell_model"


@pytest.fixture
def bench() -> EnvironmentHarness:
    harness = EnvironmentHarness(Bench())
    harness.seed(ROW)
    return harness


@pytest.mark.parametrize(
    ("name", "arguments", "output", "status"),
    [
        ("note", '{"text":"a"}', "kept a", 200),
        ("later", '{"n":"3"}', '{"x":3,"y":0}', 200),
        ("nothing", "[1]", "null", 200),
        ("nothing", "null", "null", 200),
        ("aliased", '{"state":"s"}', '"s0"', 200),
        ("refused", "{}", "no", 403),
        ("nope", "{}", '{"detail":"Not Found"}', 404),
        ("verify", "{}", '{"detail":"Not Found"}', 404),
        ("seed", "{}", '{"detail":"Not Found"}', 404),
        ("__init__", "{}", '{"detail":"Not Found"}', 404),
        ("", "{}", '{"detail":"Not Found"}', 404),
        ("nope", "{", None, 400),
        ("note", "null", '{"detail":[{"type":"missing","loc":["body"],"msg":"Field required","input":null}]}', 422),
        ("later", "null", '{"detail":[{"type":"missing","loc":["body"],"msg":"Field required","input":null}]}', 422),
        ("note", "5", NO_OBJECT % ('"body"', "5"), 422),
        ("nested", '{"point":5}', NO_OBJECT % ('"body","point"', "5"), 422),
    ],
)
def test_reply(bench: EnvironmentHarness, name: str, arguments: str, output: str | None, status: int) -> None:
    reply = bench.call(name, arguments)
    assert reply.status == status
    assert output is None or reply.output == output


def test_malformed_arguments_are_told_and_the_tool_is_not_called(bench: EnvironmentHarness) -> None:
    reply = bench.call("note", '{"a":')
    assert reply.output == (
        """{"error": "Invalid tool call arguments: JSONDecodeError('Expecting value: line 1 column 6 (char 5)')"}"""
    )
    assert bench.state.seen == []


def test_a_plain_tool_answers_without_an_event_loop() -> None:
    reply = start_tool(Bench(), ToolCall("c", "note", '{"text":"x"}'), None, Log(), Context())
    assert reply == ToolReply("kept x")


def test_state_travels_as_json_from_call_to_call(bench: EnvironmentHarness) -> None:
    bench.call("note", '{"text":"a"}')
    bench.call("note", '{"text":"東"}')
    assert json.loads(bench.state_json or "") == {"seen": ["a", "東"]}
    assert bench.verify(response()).reward == 2


@pytest.mark.parametrize("name", ["broken", "broken_later", "invalid_inside", "unwritable"])
def test_a_raising_tool_ends_the_rollout_with_class_tool(bench: EnvironmentHarness, name: str) -> None:
    with pytest.raises(ToolError, match=f"tool '{name}' of Bench raised"):
        bench.call(name)


@pytest.mark.parametrize(
    ("name", "output"), [("broken", "\"ValueError('no such city: 東京')\""), ("broken_later", "\"ValueError('too late')\"")]
)
def test_a_raising_tool_is_told_to_the_model_where_the_environment_says_so(name: str, output: str) -> None:
    harness = EnvironmentHarness(Talkative())
    harness.seed(ROW)
    assert harness.call(name) == ToolReply(output, status=500)


def test_a_failure_of_the_platform_is_never_told_to_the_model() -> None:
    harness = EnvironmentHarness(Talkative())
    harness.seed(ROW)
    with pytest.raises(InfrastructureError, match="the sandbox is gone"):
        harness.call("unreachable")


@pytest.mark.parametrize("name", ["seed", "verify", "respond", "verify_group", "call_unknown_tool"])
def test_the_environments_own_methods_cannot_be_marked_as_tools(name: str) -> None:
    cls = type("Careless", (Environment,), {name: tool(lambda self: None)})
    with pytest.raises(TypeError, match=f"Careless.{name} cannot be a tool"):
        cls()


def test_errors_of_a_long_list_are_told_up_to_a_bound(bench: EnvironmentHarness) -> None:
    reply = bench.call("total", json.dumps({"values": ["x"] * 10_000}))
    assert len(json.loads(reply.output)["detail"]) == MAX_ERRORS


@given(name=st.sampled_from(["note", "later", "nested", "total", "nothing", "aliased", "nope"]), text=st.text())
def test_any_arguments_text_gives_a_reply(name: str, text: str) -> None:
    harness = EnvironmentHarness(Bench())
    harness.seed(ROW)
    assert harness.call(name, text).output


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(st.characters(), max_size=20),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.sampled_from(["text", "n", "point", "values", "x"]), inner),
    max_leaves=12,
)


@given(name=st.sampled_from(["note", "later", "nested", "total"]), value=JSON)
def test_any_json_gives_a_reply_in_json(name: str, value: object) -> None:
    harness = EnvironmentHarness(Bench())
    harness.seed(ROW)
    reply = harness.call(name, json.dumps(value))
    if name != "note" or reply.status != 200:
        json.loads(reply.output)


class Wrong(Environment):
    def seed(self, task: Any, context: Context) -> Any:
        return {"state": 1}

    def respond(self, task: Any, response: Any, state: Any, context: Context) -> Any:
        return [1]

    def verify(self, task: Any, response: Any, state: Any, context: Context) -> Any:
        return 1.0

    def verify_group(self, members: Any, context: Context) -> Any:
        return []


class Raising(Environment):
    def seed(self, task: Any, context: Context) -> Seed:
        raise KeyError("seed")

    def respond(self, task: Any, response: Any, state: Any, context: Context) -> Move:
        raise KeyError("respond")

    def verify(self, task: Any, response: Any, state: Any, context: Context) -> Verdict:
        return Verdict(float("nan"))

    async def verify_group(self, members: Any, context: Context) -> Any:
        raise KeyError("group")


@pytest.mark.parametrize("environment", [Wrong(), Raising()])
def test_what_an_environment_does_wrong_carries_the_class_of_its_stage(environment: Environment) -> None:
    harness = EnvironmentHarness(environment)
    with pytest.raises(InfrastructureError, match="seed"):
        harness.seed(ROW)
    with pytest.raises(ToolError, match="respond"):
        harness.respond(response("hi"))
    with pytest.raises(VerifierError):
        harness.verify(response("hi"))
    with pytest.raises(VerifierError):
        harness.verify_group([response("hi")])


@pytest.mark.parametrize(
    "row", [{}, {"responses_create_params": {}}, {"responses_create_params": {"input": "x", "max_tokens": 1}}]
)
def test_a_row_that_does_not_fit_is_class_data(row: dict[str, Any]) -> None:
    with pytest.raises(DataError):
        EnvironmentHarness(Bench()).seed(row)


class Ranks(Environment):
    def verify_group(self, members: Any, context: Context) -> Any:
        return (Verdict(float(m.rollout_index)) for m in members)


def test_a_plain_group_verifier_answers_at_once() -> None:
    members = [Member(None, Response(response("hi")), None, i) for i in range(3)]
    found = start_verify_group(Ranks(), members, Context())
    assert isinstance(found, list)
    assert [v.reward for v in found] == [0.0, 1.0, 2.0]
