"""Agents whose environment moves after every turn: what the cases of the reference do not show."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import pytest
from pydantic import ValidationError

from environments.agents.agent import CallModel, Finish, View
from environments.agents.aviary_agent import REMINDER, AviaryAgent, AviaryConfig
from environments.agents.gymnasium_agent import GymnasiumAgent, GymnasiumConfig
from environments.agents.playing import Play
from environments.agents.proof_refinement import ProofRefinement, ProofRefinementConfig
from environments.aviary.episode import AviaryEnvironment, Call, Opening, Outcome, answer, user
from environments.common.gymnasium import Episode, GymnasiumEnvironment, Reset, Stepped
from environments.environment import Context, Environment, Move, Response, Task
from environments.testing import EnvironmentHarness, ScriptedModel, function_call, response
from schemas.errors import ModelError, ToolError

ROW = {"responses_create_params": {"input": "Go.", "tools": []}, "task_idx": 5}
THINKING = {"type": "reasoning", "id": "rs_1", "summary": []}


class Board(AviaryEnvironment):
    """Shows its state after each step; ends with the call of `stop`."""

    class Task(Task):
        task_idx: int

    async def reset(self, task: Any, episode: Any, context: Context) -> Opening:
        return Opening((user("task"), {**user("state 0"), "is_env_state": True}), ({"type": "function", "name": "go"},))

    async def step(self, task: Any, calls: Sequence[Call], episode: Any, context: Context) -> Outcome:
        episode.reward += 1
        shown = {**user(f"state {episode.reward:g}"), "is_env_state": True}
        return Outcome((*(answer(c, "ok") for c in calls), shown), 0.0, any(c.name == "stop" for c in calls))


def board(*replies: Any, **config: Any) -> tuple[Play, EnvironmentHarness]:
    harness = EnvironmentHarness(Board())
    harness.seed(ROW)
    return Play(AviaryAgent(AviaryConfig(**config)), harness, {"policy": ScriptedModel(*replies)}), harness


def texts(items: Sequence[Mapping[str, Any]]) -> list[Any]:
    return [i.get("content") or i.get("output") or i.get("name") for i in items]


GO, STOP = response(function_call("go")), response(function_call("stop"))


def test_old_states_are_hidden_from_the_model_and_in_the_transitions() -> None:
    play, harness = board(GO, GO, STOP, collapse_old_env_states=True, old_env_state_message="hidden")
    final = play.run()
    assert texts(play.requests[1]["input"]) == ["Go.", "task", "hidden", "go", "ok", "state 1"]
    assert texts(play.requests[2]["input"]) == ["Go.", "task", "hidden", "go", "ok", "hidden", "go", "ok", "state 2"]
    assert texts(final["output"][0]) == ["Go.", "task", "hidden", "go", "ok", "state 1"]
    assert texts(final["output"][2])[-3:] == ["stop", "ok", "state 3"]
    assert "is_env_state" not in str([final, play.requests])
    assert harness.verify(final).reward == 3


def test_states_stay_when_they_are_not_collapsed() -> None:
    play, _ = board(GO, STOP, return_transitions=False)
    final = play.run()
    assert texts(play.requests[1]["input"]) == ["Go.", "task", "state 0", "go", "ok", "state 1"]
    assert texts(final["output"]) == ["go", "ok", "state 1", "stop", "ok", "state 2"]
    assert "is_env_state" not in str([final, play.requests])


def test_a_turn_of_reasoning_alone_is_a_step_without_calls() -> None:
    play, harness = board(response(THINKING), STOP)
    assert len(play.run()["output"]) == 2
    assert harness.state.reward == 2


def test_reminders_are_in_the_transitions_and_count_as_turns() -> None:
    play, _ = board("hm", GO, "hm", done_if_no_tool_calls=False, max_steps=3)
    final = play.run()
    assert play.requests[1]["input"][-1]["content"] == REMINDER
    assert REMINDER in texts(final["output"][0])
    assert len(play.requests) == 3


def test_without_any_reply_the_rollout_fails() -> None:
    with pytest.raises(ModelError, match="503"):
        board(ModelError("503"))[0].run()
    with pytest.raises(ModelError, match="max_steps is 0"):
        board(max_steps=0)[0].run()


def test_a_failure_later_ends_with_what_there_is() -> None:
    play, harness = board(GO, ModelError("503"))
    final = play.run()
    assert len(final["output"]) == 1
    assert harness.verify(final).reward == 1


class Gym(GymnasiumEnvironment):
    """Gives its replies in order and says what it was asked."""

    def __init__(self, reset: Reset, *steps: Stepped | Exception, shut: Exception | None = None) -> None:
        super().__init__()
        self.begun, self.steps, self.broken = reset, list(steps), shut
        self.asked: list[str | None] = []

    async def reset(self, task: Any, episode: Episode, context: Context) -> Reset:
        return self.begun

    async def step(self, task: Any, response: Response, episode: Episode, context: Context, request_id: str | None) -> Stepped:
        self.asked.append(request_id)
        found = self.steps.pop(0)
        if isinstance(found, Exception):
            raise found
        return found

    async def shut(self, task: Any, episode: Episode, context: Context) -> None:
        self.asked.append("shut")
        if self.broken:
            raise self.broken


def gym(environment: Gym, *replies: Any, **config: Any) -> tuple[Play, EnvironmentHarness]:
    harness = EnvironmentHarness(environment)
    harness.seed(ROW)
    return Play(GymnasiumAgent(GymnasiumConfig(**config)), harness, {"policy": ScriptedModel(*replies)}), harness


CLOSES = Reset("start", {"supports_explicit_close": True, "supports_step_idempotency": True})


def test_steps_have_names_that_a_repeated_step_keeps() -> None:
    environment = Gym(CLOSES, Stepped("a"), Stepped(terminated=True, reward=2))
    play, harness = gym(environment, "1", "2")
    assert harness.verify(play.run()).reward == 2
    assert environment.asked == ["0-0-0", "0-0-1", "shut"]


def test_a_failed_close_is_a_warning_beside_a_good_rollout() -> None:
    environment = Gym(CLOSES, Stepped(terminated=True, reward=1, info={"x": 1}), shut=OSError("gone"))
    play, harness = gym(environment, "1")
    verdict = harness.verify(play.run())
    assert verdict.reward == 1
    assert verdict.fields["info"] == {"x": 1, "cleanup_warning": "the episode was not closed: gone"}
    assert environment.asked.count("shut") == 1


def test_the_first_observation_belongs_to_the_request_and_a_limit_truncates() -> None:
    play, harness = gym(Gym(Reset("start"), Stepped("more")), "1", max_steps=1)
    final = play.run()
    given = play.result["responses_create_params"]["input"]
    assert texts(given) == ["Go.", "start"]
    assert all(i["type"] == "message" for i in given)
    assert len(final["output"]) == 2
    assert harness.verify(final).fields["truncated"] is True


def test_a_step_that_raises_fails_the_rollout() -> None:
    with pytest.raises(ToolError, match="broken"):
        gym(Gym(CLOSES, ValueError("broken")), "1")[0].run()


def test_no_steps_are_no_episode() -> None:
    with pytest.raises(ValidationError):
        GymnasiumConfig(max_steps=0)


class Silent(Environment):
    """Neither ends a rollout nor answers."""

    def respond(self, task: Any, response: Response, state: Any, context: Context) -> Move:
        return Move()


def test_refinement_ends_when_the_environment_has_no_answer() -> None:
    harness = EnvironmentHarness(Silent())
    harness.seed(ROW)
    play = Play(ProofRefinement(ProofRefinementConfig(max_correction_turns=5)), harness, {"policy": ScriptedModel("one")})
    assert texts(play.run()["output"])[0][0]["text"] == "one"
    assert play.result["total_turns"] == 1
    assert play.result["all_attempts"][0]["generation"] == "one"


@pytest.mark.parametrize("agent", [AviaryAgent(), GymnasiumAgent(), ProofRefinement()])
def test_agents_keep_nothing(agent: Any) -> None:
    view = View({"input": "Go."})
    first = agent.next(view, ())
    assert isinstance(first.action, CallModel)
    assert agent.next(view, ()) == first
    assert not isinstance(agent.next(view, [Response(response("x"))]).action, Finish) or isinstance(agent, AviaryAgent)
