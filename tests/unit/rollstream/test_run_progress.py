"""What a run shows of itself while it goes on (platform.md B2)."""

from __future__ import annotations

import io
import json
from typing import Any

from rich.console import Console

from rollstream.runner.averages import BYTES_PER_S, Averages
from rollstream.runner.display import Display, progress_line
from rollstream.runner.watch import Watch
from services.runtime.record import Outgoing
from services.sink.step import FAILURES, RESULTS, REWARD, rollout_key


def line(reward: float, agent: str = "a", **more: Any) -> bytes:
    ref = {"agent_ref": {"name": agent}}
    return json.dumps({**ref, "reward": reward, "_ng_task_index": 7, "text": "x", "flag": True, **more}).encode()


def result(task: int, reward: float, agent: str = "a", **more: Any) -> Outgoing:
    return Outgoing(RESULTS, rollout_key("r", task, 0), line(reward, agent, **more), [(REWARD, str(reward).encode())])


def watch_of(*agents: str) -> Watch:
    watch = Watch(expected=len(agents))
    for task, agent in enumerate(agents):
        watch.asked(rollout_key("r", task, 0), agent)
    return watch


def test_b2_done_elapsed_rate_left_and_means_by_agent() -> None:
    watch = watch_of("a", "a", "a", "b")
    failed = Outgoing(FAILURES, rollout_key("r", 1, 0), b'{"_ng_failure_class": "model"}', [])
    watch.observe([result(0, 1.0, turns=2), result(2, 0.0, turns=5), failed])
    watch.observe([result(0, 1.0)])  # made again: it counts once
    assert progress_line(watch, 30) == (
        "3 of 4 rollouts: 2 scored, mean reward 0.500, 1 failed; 0:00:30 elapsed, 6.0 a minute; "
        "a: 0 left, mean reward 0.5, flag 1, turns 3.5; b: 1 left"
    )


def test_what_ended_before_a_resume_is_not_left_and_not_of_the_rate() -> None:
    watch = Watch(expected=2)
    watch.preload(rollout_key("r", 0, 0), scored=True)
    for task in (0, 1):
        watch.asked(rollout_key("r", task, 0), "a")
    assert watch.left == {"a": 1}
    watch.observe([result(1, 1.0)])
    assert "2 of 2 rollouts: 2 scored, mean reward 1.000, 0 failed; 0:01:00 elapsed, 1.0 a minute; a: 0 left" in progress_line(
        watch, 60, before=1
    )


def test_b2_a_line_at_each_whole_percent_and_at_99_5() -> None:
    count = 1000
    watch, out = watch_of(*["a"] * count), io.StringIO()
    display = Display(Console(file=out, width=300))
    with display.progress(watch):
        for task in range(count):
            watch.observe([result(task, 1.0)])
            display.update(watch)
    ended = [int(text.split(" of ")[0].replace(",", "")) for text in out.getvalue().splitlines()]
    assert ended == [*range(10, 1000, 10), 995, 1000]


def test_parsing_keeps_within_its_budget_and_says_so() -> None:
    now = 0.0
    averages = Averages(clock=lambda: now)
    large = line(1.0, padding="x" * (BYTES_PER_S // 2))
    averages.add(large)
    assert not averages.sampled
    averages.add(line(0.0, padding="x" * (BYTES_PER_S // 2)))
    assert averages.sampled
    assert averages.of("a")["reward"] == 1.0
    now = 1.0
    averages.add(line(0.0))
    assert averages.of("a")["reward"] == 0.5


def test_means_of_hostile_lines() -> None:
    averages = Averages()
    for text in (b"[]", b'{"agent_ref": "x", "reward": true}', b'{"agent_ref": {"name": "a"}, "x": 1e400}'):
        averages.add(text)
    assert averages.of("unknown") == {"reward": 1.0}
