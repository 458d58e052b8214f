"""A service that is the agent, and a conversation with whom the environment plays."""

from __future__ import annotations

from typing import Any

import pytest
from pydantic import ValidationError

from environments.agents.agent import CallModel, Finish, View
from environments.agents.dialogue_agent import DialogueAgent, DialogueConfig
from environments.agents.playing import Play
from environments.agents.remote_agent import RemoteAgent, RemoteConfig, open_calls
from environments.agents.simple_agent import MAX_IDLE_TURNS
from environments.environment import Context, Environment, Move, Response
from environments.testing import EnvironmentHarness, ScriptedModel, function_call, message, response
from environments.tools import Text
from schemas.errors import ModelError

ROW = {"responses_create_params": {"input": "Hello."}}
THINKING = {"type": "reasoning", "id": "rs", "summary": []}


class Host(Environment):
    """Answers every call, and what the policy says until it says goodbye."""

    def call_unknown_tool(self, name: str, arguments: Any, task: Any, state: Any, context: Context) -> Text:
        return Text("done")

    def respond(self, task: Any, response: Response, state: Any, context: Context) -> Move:
        said = response.flat_text()
        return Move(done=True) if said == "bye" else Move((message(f"{said}?", role="user"),))


def played(agent: Any, *replies: Any, model: str = "policy") -> Play:
    harness = EnvironmentHarness(Host())
    harness.seed(ROW)
    play = Play(agent, harness, {model: ScriptedModel(*replies)})
    play.run()
    return play


def kinds(play: Play) -> list[Any]:
    return [i.get("role") or i["type"] for i in play.items]


def test_the_environment_answers_once_the_tools_have() -> None:
    both = response(function_call("look"), "one moment")
    play = played(DialogueAgent(), both, "found", response(THINKING), "bye")
    said = ["function_call", "assistant", "function_call_output", "assistant", "user", "reasoning", "assistant"]
    assert kinds(play) == said
    assert play.requests[2]["input"][-1] == message("found?", role="user")


def test_a_conversation_is_bounded() -> None:
    assert len(played(DialogueAgent(DialogueConfig(max_steps=3)), *["and"] * 9).requests) == 3
    assert len(played(DialogueAgent(), *[response(THINKING)] * 99).requests) == MAX_IDLE_TURNS
    assert kinds(played(DialogueAgent(DialogueConfig(max_steps=1)), response(function_call("look")))) == [
        "function_call",
        "function_call_output",
    ]


def test_an_incomplete_reply_ends_the_conversation() -> None:
    play = played(DialogueAgent(), response(function_call("look"), incomplete_details={"reason": "max_output_tokens"}))
    assert kinds(play) == ["function_call"]


def test_a_service_is_called_by_its_name_and_its_own_tool_calls_are_left_alone() -> None:
    own = [function_call("own", call_id="a"), {"type": "function_call_output", "call_id": "a", "output": "x"}]
    agent = RemoteAgent(RemoteConfig(model="helpdesk"))
    play = played(agent, response(*own, function_call("look", call_id="b")), "bye", model="helpdesk")
    assert kinds(play) == ["function_call", "function_call_output", "function_call", "function_call_output", "assistant"]
    assert [i["call_id"] for i in play.items if i["type"] == "function_call_output"] == ["a", "b"]


def test_an_output_may_come_before_its_call() -> None:
    output = {"type": "function_call_output", "call_id": "a", "output": "x"}
    assert open_calls([output, function_call("f", call_id="a")]) == ()


def test_a_service_is_not_asked_for_ever() -> None:
    assert len(played(RemoteAgent(), *[response(THINKING)] * 99).requests) == MAX_IDLE_TURNS
    assert len(played(RemoteAgent(RemoteConfig(max_steps=1)), response(function_call("look"))).requests) == 1
    with pytest.raises(ModelError, match="503"):
        played(RemoteAgent(), ModelError("503"))


def test_an_address_is_refused_with_what_to_do() -> None:
    with pytest.raises(ValidationError, match=r"models\.NAME\.url"):
        RemoteConfig.model_validate({"agent_base_url": "http://localhost:1"})


@pytest.mark.parametrize("agent", [RemoteAgent(), DialogueAgent()])
def test_agents_keep_nothing(agent: Any) -> None:
    view = View({"input": "Hello."}, turn=1)
    step = agent.next(view, [Response(response(THINKING))])
    assert isinstance(step.action, CallModel)
    assert agent.next(view, [Response(response(THINKING))]) == step
    assert isinstance(agent.next(View({"input": "Hello."}, done=True), ()).action, Finish)
