"""`agent`, `agent_config`, `policy`: the rollout is played by an agent against a scripted policy, and then scored."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from environments.agents.playing import Play
from environments.manifest import AgentBlock, Variant
from environments.registry import agent_types, make_agent
from environments.testing import EnvironmentHarness, ScriptedModel, response
from tests.conformance.cases import Case
from tests.conformance.forms.form import Form, Played


class PlayedAgent(Form):
    """Plays; what the policy was asked becomes fields: `policy_calls`, `policy_inputs`, `policy_params`."""

    keys = frozenset({"agent", "agent_config", "policy"})

    def obstacle(self, case: Case) -> str | None:
        agent = case.data.get("agent")
        return f"there is no agent {agent!r}" if agent and agent not in agent_types() else None

    def response(self, case: Case, harness: EnvironmentHarness) -> Played | None:
        if "policy" not in case.data:
            return None
        block = AgentBlock(name="played", type=case.data["agent"], config=case.data.get("agent_config") or {})
        policy = ScriptedModel(*(_reply(r) for r in case.data["policy"]))
        play = Play(make_agent(Variant(agent=block)), harness, {"policy": policy})
        final = play.run()
        asked = {
            "policy_calls": len(play.requests),
            "policy_inputs": [r["input"] for r in play.requests],
            "policy_params": [_params(r, case) for r in play.requests],
        }
        return Played(final, {**play.result, **asked})


def _params(request: Mapping[str, Any], case: Case) -> dict[str, Any]:
    """The parameters that the case speaks of; one that was not sent is null."""
    names = {name for wanted in case.expected.get("policy_params") or () for name in wanted}
    return {name: request.get(name) for name in names}


def _reply(scripted: Mapping[str, Any]) -> Mapping[str, Any]:
    return response(scripted["reply"]) if "reply" in scripted else response(*scripted["output"])
