"""Running one case of `agents.jsonl`: an agent against scripted replies of the model and of the tools or the environment."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from environments.agents.agent import Agent
from environments.agents.playing import Play
from environments.environment import Context, Environment
from environments.manifest import AgentBlock, Variant
from environments.registry import agent_types, make_agent
from environments.testing import EnvironmentHarness, ScriptedModel
from environments.tools import ToolReply
from schemas.errors import ModelError
from services.models.reply import problem
from tests.conformance.cases import Case
from tests.conformance.comparing import differences
from tests.conformance.scripted_partners import Script, ScriptedAviary, ScriptedGymnasium

_KNOWN = frozenset({"id", "note", "agent", "config", "responses_create_params", "row", "model", "tools", "env", "expected"})

_OURS = frozenset({"row_fields_echoed"})
"""Expectations that ours does not meet on purpose: a line without its row's fields could not be verified again, so ours always
has them (platform.md A1), with this agent as with every other."""

FAILED = "episode fails"

_FAILURES = frozenset({FAILED, "RemoteAgentError", "RemoteAgentTerminalError"})
"""The reference's names for a rollout without a score. Whether another try may help is the endpoint's to say here, for this
agent as for every other."""

PARTNERS = {"gymnasium_agent": ScriptedGymnasium, "aviary_agent": ScriptedAviary}
"""Agents whose environment answers each turn; all others call tools."""


class ScriptedTools(Environment):
    """Answers every call with the next scripted body and keeps what was asked."""

    def __init__(self, replies: Iterator[Mapping[str, Any]]) -> None:
        super().__init__()
        self.replies = replies
        self.calls: list[dict[str, Any]] = []

    def call_unknown_tool(self, name: str, arguments: Any, task: Any, state: Any, context: Context) -> ToolReply:
        self.calls.append({"name": name, "arguments": arguments})
        reply = next(self.replies)
        return ToolReply(reply["body"], reply.get("status", 200))


class NotedModel(ScriptedModel):
    """Notes its calls among those of the environment."""

    def __init__(self, script: Script, *replies: Mapping[str, Any] | ModelError) -> None:
        super().__init__(*replies)
        self.script = script

    def answer(self, params: Mapping[str, Any]) -> Mapping[str, Any]:
        self.script.calls.append("model")
        return super().answer(params)


def exists(agent: str) -> bool:
    return agent in agent_types()


def obstacle(case: Case) -> str | None:
    unknown = sorted(case.data.keys() - _KNOWN)
    return f"no form for {', '.join(unknown)}" if unknown else None


def run(case: Case) -> list[str]:
    expected = {k: v for k, v in case.expected.items() if k not in _OURS}
    if expected.get("error") in _FAILURES:
        expected["error"] = FAILED
    return differences(expected, _with_partner(case) if case.data["agent"] in PARTNERS else _with_tools(case))


def _with_tools(case: Case) -> dict[str, Any]:
    tools = ScriptedTools(iter(case.data.get("tools") or case.data.get("env") or ()))
    harness = EnvironmentHarness(tools)
    harness.seed({"responses_create_params": case.data["responses_create_params"]})
    played = Play(_agent(case), harness, {"policy": ScriptedModel(*_replies(case))})
    try:
        result: dict[str, Any] = {"response": played.run()}
    except ModelError:
        result = {"error": FAILED}
    calls = len(played.requests)
    return {**result, "model_calls": calls, "service_calls": calls, "tool_calls": tools.calls}


def _with_partner(case: Case) -> dict[str, Any]:
    """The rollout with its verdict; of the record, `output`, `usage` and `input` are lifted out as the cases have them."""
    script = Script(iter(case.data["env"]))
    harness = EnvironmentHarness(PARTNERS[case.data["agent"]](script))
    harness.seed(_row(case))
    played = Play(_agent(case), harness, {"policy": NotedModel(script, *_replies(case))})
    try:
        response = played.run()
    except ModelError:
        return {"error": FAILED, "calls": script.calls}
    verdict = harness.verify(response)
    given = played.result.get("responses_create_params", played.params)
    record = {**played.result, **verdict.fields, "reward": verdict.reward, "response": response, "calls": script.calls}
    return {**record, "output": response["output"], "usage": response["usage"], "input": given["input"]}


def _row(case: Case) -> dict[str, Any]:
    """A case gives the row, or only what is not its parameters (and calls that the parameters)."""
    return dict(case.data.get("row") or {**case.data["responses_create_params"], "responses_create_params": {"input": []}})


def _agent(case: Case) -> Agent:
    block = AgentBlock(name=case.data["agent"], type=case.data["agent"], config=case.data.get("config") or {})
    return make_agent(Variant(agent=block))


def _replies(case: Case) -> list[Mapping[str, Any] | ModelError]:
    return [_reply(scripted) for scripted in case.data["model"]]


def _reply(scripted: Mapping[str, Any]) -> Mapping[str, Any] | ModelError:
    if "status" in scripted and "output" not in scripted:
        return ModelError(f"the model answered {scripted['status']}")
    wrong = problem(dict(scripted))
    return ModelError(wrong) if wrong else scripted
