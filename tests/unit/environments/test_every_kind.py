"""Every kind of environment fits the one interface: small runnable environments, one for each row of the design's table."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any

import pytest
from pydantic import Field

from environments.agents.agent import Agent, AgentConfig, AskEnvironment, CallModel, Finish, ModelRequest, Step, View
from environments.agents.playing import Play, play
from environments.agents.simple_agent import SimpleAgent
from environments.agents.single_call import SingleCall
from environments.context import PYTHON, Context, Limits, SandboxResult
from environments.environment import Environment, Member, Move, Response, Reverify, Seed, State, Task, Verdict
from environments.testing import EnvironmentHarness, ScriptedModel, function_call, message, response
from environments.tools import Text, tool
from schemas.errors import InfrastructureError, JudgeError, ToolError

PARAMS = {"responses_create_params": {"input": "Q?"}}


# Score the text.


class Length(Environment):
    cpu_heavy = True
    reverify = Reverify.STATELESS

    def verify(self, task: Any, response: Response, state: Any, context: Context) -> Verdict:
        text = response.flat_text()
        return Verdict(len(text) <= 5, components={"short": len(text) <= 5}, length=len(text))


def test_score_the_text() -> None:
    harness = EnvironmentHarness(Length())
    harness.seed(PARAMS)
    verdict = harness.verify(play(SingleCall(), harness, "hello"))
    assert (verdict.reward, verdict.components, verdict.fields) == (1.0, {"short": True}, {"length": 5})


# Ask a judge.


class Judged(Environment):
    class Task(Task):
        reference: str

    async def verify(self, task: Any, response: Response, state: Any, context: Context) -> Verdict:
        prompt = f"Does {response.flat_text()!r} say the same as {task.reference!r}? Answer yes or no."
        said = (await context.model("judge").create({"input": [{"role": "user", "content": prompt}]})).flat_text()
        return Verdict(1.0 if said.strip().lower() == "yes" else 0.0, judge_text=said)


@pytest.mark.parametrize(("said", "reward"), [("Yes", 1.0), ("no", 0.0), ("I cannot tell", 0.0)])
def test_ask_a_judge(said: str, reward: float) -> None:
    judge = ScriptedModel(said)
    harness = EnvironmentHarness(Judged(), context=Context(models={"judge": judge}))
    harness.seed({**PARAMS, "reference": "four"})
    assert harness.verify(response("4")).reward == reward
    assert "'four'" in judge.requests[0]["input"][0]["content"]


def test_a_failed_judge_call_is_no_score_and_a_missing_judge_is_no_judge_failure() -> None:
    judge = ScriptedModel(JudgeError("503 from the judge"))
    harness = EnvironmentHarness(Judged(), context=Context(models={"judge": judge}))
    harness.seed({**PARAMS, "reference": "four"})
    with pytest.raises(JudgeError):
        harness.verify(response("4"))
    harness = EnvironmentHarness(Judged())
    harness.seed({**PARAMS, "reference": "four"})
    with pytest.raises(InfrastructureError, match="no model named 'judge'"):
        harness.verify(response("4"))


# Run model-written code.


class FakeSandbox:
    """Stands for the sandbox: "runs" a program by looking up its source."""

    def __init__(self, results: Mapping[bytes, SandboxResult]) -> None:
        self.results = results

    async def run(
        self,
        argv: Sequence[str],
        *,
        files: Mapping[str, bytes] | None = None,
        stdin: bytes = b"",
        limits: Limits = Limits(),
        collect: Sequence[str] = (),
    ) -> SandboxResult:
        assert files is not None
        return self.results[files["main.py"]]


class RunsCode(Environment):
    async def verify(self, task: Any, response: Response, state: Any, context: Context) -> Verdict:
        files = {"main.py": response.flat_text().encode()}
        result = await context.sandbox.run([PYTHON, "main.py"], files=files, stdin=b"2 2", limits=Limits(wall_s=5))
        return Verdict(float(result.stdout == b"4\n" and not result.timed_out), limit=result.limit)


def test_run_model_written_code() -> None:
    results = {b"good": SandboxResult(0, b"4\n", b""), b"slow": SandboxResult(-9, b"", b"", limit="wall")}
    harness = EnvironmentHarness(RunsCode(), context=Context(sandbox_client=FakeSandbox(results)))
    harness.seed(PARAMS)
    assert harness.verify(response("good")).reward == 1.0
    assert harness.verify(response("slow")).fields == {"limit": "wall"}


# Tools, and tools with state.


class Basket(State):
    fruit: dict[str, int] = Field(default_factory=dict)


class Shop(Environment):
    class Task(Task):
        wanted: dict[str, int]
        stock: list[str]

    State = Basket
    reverify = Reverify.UNSUPPORTED

    def seed(self, task: Any, context: Context) -> Seed:
        return Seed(items=(message("Welcome to the shop.", role="user"),), tools=(self.tools["take"].schema(),))

    @tool
    async def take(self, fruit: str, task: Any, state: Basket, count: int = 1) -> Text:
        """Put fruit into the basket."""
        if fruit not in task.stock:
            return Text(f"There is no {fruit}.")
        state.fruit[fruit] = state.fruit.get(fruit, 0) + count
        return Text("Taken.")

    def verify(self, task: Any, response: Response, state: Basket, context: Context) -> Verdict:
        return Verdict(float(state.fruit == task.wanted))


def test_tools_with_state_and_what_a_seed_brings() -> None:
    harness = EnvironmentHarness(Shop())
    harness.seed({**PARAMS, "wanted": {"fig": 2}, "stock": ["fig"]})
    turns = [
        response(function_call("take", '{"fruit":"kiwi"}'), function_call("take", '{"fruit":"fig"}')),
        response(
            function_call("take", '{"fruit":"fig","count":"1"}'), function_call("steal", "{}"), function_call("take", "{")
        ),
    ]
    played = Play(SimpleAgent(), harness, {"policy": ScriptedModel(*turns, "done")})
    final = played.run()
    assert harness.verify(final).reward == 1.0
    texts = [i["output"] for i in final["output"] if i.get("type") == "function_call_output"]
    assert texts[:4] == ["There is no kiwi.", "Taken.", "Taken.", '{"detail":"Not Found"}']
    assert [t["name"] for t in played.requests[0]["tools"]] == ["take"]
    assert played.requests[0]["input"][1]["content"][0]["text"] == "Welcome to the shop."


# Tools with a live session.


class Session:
    """A live session: an interpreter that can only add and subtract."""

    def __init__(self) -> None:
        self.value = 0

    async def execute(self, code: str, *, timeout_s: float) -> Mapping[str, Any]:
        if code == "crash":
            raise ToolError("the session died")
        self.value += int(code)
        return {"value": self.value}


class SessionPool:
    """The sessions of one worker; rebuilds one it does not have from the journal."""

    def __init__(self) -> None:
        self.live: dict[str, Session] = {}

    async def get(self, rollout: str, driver: str, *, journal: Sequence[str] = (), limits: Limits = Limits()) -> Session:
        if rollout not in self.live:
            self.live[rollout] = Session()
            for code in journal:
                await self.live[rollout].execute(code, timeout_s=1)
        return self.live[rollout]

    async def close(self, rollout: str) -> None:
        del self.live[rollout]


class Journal(State):
    commands: list[str] = Field(default_factory=list)


class Terminal(Environment):
    State = Journal
    seed_on = "tool_worker"

    @tool
    async def execute(self, command: str, state: Journal, context: Context) -> Text:
        session = await context.sessions.get(context.rollout_id, "adder", journal=state.commands)
        result = await session.execute(command, timeout_s=5)
        state.commands.append(command)
        return Text(str(result["value"]))

    def verify(self, task: Any, response: Response, state: Journal, context: Context) -> Verdict:
        return Verdict(len(state.commands))


def test_a_live_session_is_rebuilt_from_its_journal_when_the_worker_is_gone() -> None:
    first, second = SessionPool(), SessionPool()
    harness = EnvironmentHarness(Terminal(), context=Context(rollout_id="7-0", session_pool=first))
    harness.seed(PARAMS)
    assert [harness.call("execute", json.dumps({"command": c})).output for c in ("3", "4")] == ["3", "7"]
    assert len(first.live) == 1
    harness.context = Context(rollout_id="7-0", session_pool=second)
    assert harness.call("execute", '{"command":"-2"}').output == "5"
    with pytest.raises(ToolError, match="the session died"):
        harness.call("execute", '{"command":"crash"}')
    assert harness.verify(response()).reward == 3


# Tools given by the row.


class RowTools(Environment):
    class Task(Task):
        expected_calls: list[dict[str, Any]]

    def call_unknown_tool(self, name: str, arguments: Any, task: Any, state: Any, context: Context) -> Any:
        offered = {t["name"] for t in task.responses_create_params.get("tools") or ()}
        return Text("ok") if name in offered else None

    def verify(self, task: Any, response: Response, state: Any, context: Context) -> Verdict:
        made = [{"name": c["name"], "arguments": json.loads(c["arguments"])} for c in response.function_calls()]
        return Verdict(float(made == task.expected_calls))


def test_tools_given_by_the_row_are_answers_and_nothing_is_executed() -> None:
    schema = {"type": "function", "name": "book", "parameters": {"type": "object"}, "strict": False}
    row = {
        "responses_create_params": {"input": "Q?", "tools": [schema]},
        "expected_calls": [{"name": "book", "arguments": {"seat": 3}}],
    }
    harness = EnvironmentHarness(RowTools())
    harness.seed(row)
    final = play(SingleCall(), harness, response(function_call("book", '{"seat": 3}')))
    assert [i["type"] for i in final["output"]] == ["function_call"]
    assert harness.verify(final).reward == 1.0
    assert harness.call("book").output == "ok"
    assert harness.call("cancel").output == '{"detail":"Not Found"}'


# A partner in the conversation.


class Guess(State):
    reward: float = 0.0
    moves: int = 0


class HigherOrLower(Environment):
    class Task(Task):
        number: int

    State = Guess

    def seed(self, task: Any, context: Context) -> Seed:
        return Seed(Guess(), items=(message("Guess my number.", role="user"),))

    def respond(self, task: Any, response: Response, state: Guess, context: Context) -> Move:
        state.moves += 1
        guess = int(response.flat_text())
        if guess == task.number:
            state.reward += 1.0 / state.moves
            return Move(done=True)
        return Move((message("higher" if guess < task.number else "lower", role="user"),))

    def verify(self, task: Any, response: Response, state: Guess, context: Context) -> Verdict:
        return Verdict(state.reward, moves=state.moves)


class Turns(Agent):
    """After every turn of the policy the environment moves, up to `max_steps` turns."""

    class Config(AgentConfig):
        max_steps: int = 10

    def next(self, view: View, replies: Sequence[Response]) -> Step:
        if replies:
            return Step(AskEnvironment(), replies[-1].output)
        over = view.done or view.turn >= self.config.max_steps
        return Step(Finish({"metadata": {"truncated": str(not view.done)}}) if over else CallModel())


def test_a_partner_in_the_conversation_answers_until_it_ends_the_rollout() -> None:
    harness = EnvironmentHarness(HigherOrLower())
    harness.seed({**PARAMS, "number": 6})
    played = Play(Turns(), harness, {"policy": ScriptedModel("5", "7", "6")})
    final = played.run()
    assert [i["content"][0]["text"] for i in final["output"]] == ["Guess my number.", "5", "higher", "7", "lower", "6"]
    assert len(played.requests[2]["input"]) == 6
    assert final["metadata"] == {"truncated": "False"}
    assert harness.verify(final).reward == pytest.approx(1 / 3)


def test_a_partner_is_left_when_the_agent_has_had_its_turns() -> None:
    harness = EnvironmentHarness(HigherOrLower())
    harness.seed({**PARAMS, "number": 6})
    final = play(Turns(Turns.Config(max_steps=2)), harness, "1", "2")
    assert final["metadata"] == {"truncated": "True"}
    assert harness.verify(final).fields == {"moves": 2}


# Score a group.


class Ranked(Environment):
    scoring = "group"

    async def verify_group(self, members: Sequence[Member], context: Context) -> list[Verdict]:
        order = sorted(members, key=lambda m: len(m.response.flat_text()))
        return [Verdict(order.index(m) / max(1, len(members) - 1), rank=order.index(m)) for m in members]


def test_score_a_group() -> None:
    harness = EnvironmentHarness(Ranked())
    harness.seed(PARAMS)
    verdicts = harness.verify_group([response("long answer"), response("short"), response("longest answer")])
    assert [v.reward for v in verdicts] == [0.5, 0.0, 1.0]


# An agent of its own: several model calls, own prompts, memory.


class Reflect(Agent):
    """Answers, criticises its answer, answers again; then compares two more answers made at once."""

    def next(self, view: View, replies: Sequence[Response]) -> Step:
        stage = view.memory.get("stage", "draft")
        if stage == "draft" and not replies:
            return Step(CallModel(), memory={"stage": "draft"})
        if stage == "draft":
            text = replies[0].flat_text()
            ask = ModelRequest(input=[message(f"What is wrong with {text!r}?", role="user")], params={"temperature": 0})
            return Step(CallModel((ask,)), replies[0].output, {"stage": "critique", "draft": text})
        if stage == "critique":
            asks = [
                ModelRequest(input=[message(f"{p} {replies[0].flat_text()}", role="user")]) for p in ("Briefly:", "At length:")
            ]
            return Step(CallModel(tuple(asks)), memory={**view.memory, "stage": "choose"})
        best = max(replies, key=lambda r: len(r.flat_text()))
        return Step(Finish({"metadata": {"draft": view.memory["draft"]}}), best.output)


def test_an_agent_of_its_own_makes_several_calls_and_remembers() -> None:
    harness = EnvironmentHarness(Length())
    harness.seed(PARAMS)
    usage = {"input_tokens": 1, "output_tokens": 1, "total_tokens": 2}
    replies = [response(text, usage=usage) for text in ("draft", "too vague", "short", "the long one")]
    played = Play(Reflect(), harness, {"policy": ScriptedModel(*replies)})
    final = played.run()
    assert [i["content"][0]["text"] for i in final["output"]] == ["draft", "the long one"]
    assert final["metadata"] == {"draft": "draft"}
    assert final["usage"]["total_tokens"] == 8
    assert played.requests[1]["temperature"] == 0
    assert [r["input"][0]["content"][0]["text"] for r in played.requests[2:]] == ["Briefly: too vague", "At length: too vague"]


# The policy or another model inside.


class AsksAnother(Environment):
    @tool
    async def ask_expert(self, question: str, context: Context) -> Text:
        """Ask an expert."""
        return Text((await context.model("expert").create({"input": question})).flat_text())

    async def verify(self, task: Any, response: Response, state: Any, context: Context) -> Verdict:
        again = await context.model("policy").create({"input": response.flat_text()})
        return Verdict(float(again.flat_text() == response.flat_text()))


def test_models_inside_a_tool_and_a_verifier() -> None:
    models = {"expert": ScriptedModel("42"), "policy": ScriptedModel("42")}
    harness = EnvironmentHarness(AsksAnother(), context=Context(models=models))
    harness.seed(PARAMS)
    final = play(SimpleAgent(), harness, response(function_call("ask_expert", '{"question":"?"}')), "42")
    assert harness.verify(final).reward == 1.0
    assert models["expert"].requests == [{"input": "?"}]
