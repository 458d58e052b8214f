"""What the journal holds, and that a lost notebook is said. The sessions are scripted: a program adds up numbers."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from environments.context import Context, Limits
from environments.registry import Registry
from environments.testing import EnvironmentHarness, response
from schemas.errors import RolloutTimeout

ROW = {"responses_create_params": {"input": "?"}, "expected_answer": "42"}
BINDING = Registry.load().binding("my_environment", None)


class Adder:
    """A session that adds up what it is given; `hang` runs out of time."""

    def __init__(self, journal: Sequence[str]) -> None:
        self.total = sum(map(int, journal))

    async def execute(self, code: str, *, timeout_s: float) -> Mapping[str, object]:
        if code == "hang":
            raise RolloutTimeout("the call was killed")
        self.total += int(code)
        return {"text": str(self.total)}


class Worker:
    """The sessions of one worker."""

    def __init__(self) -> None:
        self.live: dict[str, Adder] = {}

    async def get(self, rollout: str, driver: str, *, journal: Sequence[str] = (), limits: Limits = Limits()) -> Adder:
        return self.live.setdefault(rollout, Adder(journal))

    async def close(self, rollout: str) -> None:
        self.live.pop(rollout, None)


def harness(worker: Worker) -> EnvironmentHarness:
    context = Context(rollout_id="1-0", session_pool=worker)
    made = EnvironmentHarness(BINDING, context=context)
    made.seed(ROW)
    return made


def test_another_worker_rebuilds_the_notebook_from_the_journal() -> None:
    made = harness(Worker())
    assert [made.call("run_cell", f'{{"code": "{n}"}}').output for n in (30, 5)] == ["30", "35"]
    made.context = Context(rollout_id="1-0", session_pool=Worker())
    assert made.call("run_cell", '{"code": "7"}').output == "42"
    assert made.state.cells == ["30", "5", "7"]


def test_a_cell_that_hangs_costs_all_variables() -> None:
    made = harness(Worker())
    made.call("run_cell", '{"code": "30"}')
    assert "all variables are gone" in made.call("run_cell", '{"code": "hang"}').output
    assert made.state.cells == []


def test_closing_ends_the_session() -> None:
    worker = Worker()
    made = harness(worker)
    made.call("run_cell", '{"code": "1"}')
    made.close()
    assert worker.live == {}


def test_the_whole_reply_is_the_answer() -> None:
    made = harness(Worker())
    assert made.verify(response(" 42 ")).reward == 1.0
    assert made.verify(response("It is 42")).reward == 0.0
