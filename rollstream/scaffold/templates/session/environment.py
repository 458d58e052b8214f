"""A notebook that keeps its variables between calls. Invariant: any worker can rebuild it from the journal in the state."""

from __future__ import annotations

from typing import Annotated

from pydantic import Field

from environments.context import Limits
from environments.environment import Context, Environment, Response, Reverify, Seed, State, Task, Verdict
from environments.tools import Text, tool
from schemas.errors import RolloutTimeout, SessionEnded

DRIVER = """
import ast

names = {}


def execute(code):
    try:
        tree = ast.parse(code)
        last = tree.body.pop() if tree.body and isinstance(tree.body[-1], ast.Expr) else None
        exec(compile(tree, "cell", "exec"), names)
        value = eval(compile(ast.Expression(last.value), "cell", "eval"), names) if last else None
        return {"text": "" if value is None else repr(value)[:2000]}
    except Exception as e:
        return {"text": f"{type(e).__name__}: {e}"[:2000]}
"""
"""Runs in the sandbox, once for each rollout; `execute` answers every call with a JSON object."""

LIMITS = Limits(memory=512 << 20, processes=8)
CALL_S = 10.0


class CellTask(Task):
    """`expected_answer`: compared with the policy's whole reply, blanks around it aside."""

    expected_answer: str


class Journal(State):
    """The cells that have been executed, in order."""

    cells: list[str] = Field(default_factory=list)


class MyEnvironment(Environment):
    """Rewards the expected answer with 1.0, any other with 0.0."""

    Task = CellTask
    State = Journal
    seed_on = "tool_worker"
    reverify = Reverify.STATELESS  # the answer is in the reply; the notebook only helps to find it

    def seed(self, task: CellTask, context: Context) -> Seed:
        return Seed(tools=tuple(t.schema() for t in self.tools.values()))

    @tool
    async def run_cell(
        self,
        code: Annotated[str, Field(max_length=20_000, description="Python. The value of the last expression is shown.")],
        state: Journal,
        context: Context,
    ) -> Text:
        """Run a cell of Python in a notebook that keeps its variables."""
        session = await context.sessions.get(context.rollout_id, DRIVER, journal=state.cells, limits=LIMITS)
        try:
            reply = await session.execute(code, timeout_s=CALL_S)
        except (RolloutTimeout, SessionEnded):
            state.cells.clear()
            return Text("The cell was ended; all variables are gone.")
        state.cells.append(code)
        return Text(str(reply.get("text", "")))

    async def close(self, task: CellTask, state: Journal, context: Context) -> None:
        await context.sessions.close(context.rollout_id)

    def verify(self, task: CellTask, response: Response, state: Journal, context: Context) -> Verdict:
        answer = response.flat_text().strip()
        return Verdict(float(answer == task.expected_answer.strip()), cells=len(state.cells))
