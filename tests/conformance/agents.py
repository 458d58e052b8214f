"""Running one case of `agents.jsonl`: an agent against scripted replies of the model and the tools."""

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

_KNOWN = frozenset({"id", "note", "agent", "config", "responses_create_params", "model", "tools", "env", "expected"})


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


def exists(agent: str) -> bool:
    return agent in agent_types()


def obstacle(case: Case) -> str | None:
    unknown = sorted(case.data.keys() - _KNOWN)
    return f"no form for {', '.join(unknown)}" if unknown else None


def run(case: Case) -> list[str]:
    tools = ScriptedTools(iter(case.data.get("tools") or case.data.get("env") or ()))
    harness = EnvironmentHarness(tools)
    harness.seed({"responses_create_params": case.data["responses_create_params"]})
    policy = ScriptedModel(*(_reply(scripted) for scripted in case.data["model"]))
    played = Play(_agent(case), harness, {"policy": policy})
    try:
        result: dict[str, Any] = {"response": played.run()}
    except ModelError:
        result = {"error": "episode fails"}
    return differences(case.expected, {**result, "model_calls": len(played.requests), "tool_calls": tools.calls})


def _agent(case: Case) -> Agent:
    block = AgentBlock(name=case.data["agent"], type=case.data["agent"], config=case.data.get("config") or {})
    return make_agent(Variant(agent=block))


def _reply(scripted: Mapping[str, Any]) -> Mapping[str, Any] | ModelError:
    if "status" in scripted and "output" not in scripted:
        return ModelError(f"the model answered {scripted['status']}")
    wrong = problem(dict(scripted))
    return ModelError(wrong) if wrong else scripted
