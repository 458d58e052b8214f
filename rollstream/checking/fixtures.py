"""Verifier fixtures (platform.md, "Neighbouring features"): cases with the reward that they must get.

A line of `data/fixtures.jsonl` has `name`, `kind`, `request` (a row, with the policy's `response`) and `expected_reward` or
`expected_error`. Beyond the reference's form: `calls` (tools called before scoring, each with the `output` that the model must
read), `turns` (the policy's turns, answered by the environment), `judge` (texts of a scripted judge); and where groups are
scored `responses` in the request, with `expected_rewards`.
"""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Literal

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from environments.testing import EnvironmentHarness, ScriptedModel, response
from rollstream.checking.findings import Problem, Skip
from rollstream.checking.scoring import within_range
from rollstream.checking.subject import Subject, scored
from schemas import jsontext
from schemas.errors import InfrastructureError, RolloutError
from schemas.rows import describe

FILE = "fixtures.jsonl"


class ScriptedCall(BaseModel):
    """A call of a tool: `arguments` is the JSON text that a model would write, `output` what it must read."""

    model_config = ConfigDict(extra="forbid")

    name: str
    arguments: str = "{}"
    output: str | None = None


class Fixture(BaseModel):
    """One case."""

    model_config = ConfigDict(extra="forbid")

    name: str
    kind: Literal["full_reward", "zero_reward", "malformed", "determinism"]
    request: dict[str, Any]
    expected_reward: float | None = None
    expected_rewards: list[float] | None = None
    expected_error: str | None = None
    calls: list[ScriptedCall] = Field(default_factory=list)
    turns: list[str] = Field(default_factory=list)
    judge: list[str] | None = None

    @property
    def row(self) -> dict[str, Any]:
        """The task."""
        return {k: v for k, v in self.request.items() if k not in {"response", "responses"}}

    @property
    def answers(self) -> list[Mapping[str, Any]]:
        """What the policy answered: one response, or those of a group."""
        return list(self.request.get("responses") or [self.request.get("response") or response()])


def check_fixtures(subject: Subject, said: list[str]) -> None:
    """Every case gets its reward; full and zero are the ends of the range, malformed is refused, determinism holds twice."""
    path = path_of(subject)
    if not path.is_file():
        raise Skip(f"there is no data/{FILE}")
    fixtures = read(path)
    wrong = [f"{FILE}: {f.name!r}: {why}" for f in fixtures if (why := _wrong(subject, f))]
    if wrong:
        raise Problem("; ".join(wrong))
    if subject.entry.manifest.determinism == "seeded" and not any(f.kind == "determinism" for f in fixtures):
        raise Problem(f"config.yaml says determinism: seeded; {FILE} needs a case of kind determinism")
    said.append(f"{len(fixtures)} cases")


def path_of(subject: Subject) -> Path:
    """Where an environment's fixtures lie."""
    return subject.entry.folder / "data" / FILE


def read(path: Path) -> list[Fixture]:
    """The fixtures of a file; raises `Problem` that names the line of a bad one."""
    found = []
    for number, line in enumerate(path.read_bytes().splitlines(), 1):
        try:
            found.append(Fixture.model_validate(jsontext.loads(line)))
        except ValidationError as e:
            raise Problem(f"{FILE}:{number}: {describe(e, 'fixture')}") from e
        except ValueError as e:
            raise Problem(f"{FILE}:{number}: not JSON: {e}") from e
    return found


def update(subject: Subject) -> int:
    """Write the rewards that the environment gives now into its fixtures, all or nothing; how many have changed."""
    path = path_of(subject)
    old = read(path)
    new = [_updated(subject, f) for f in old]
    lines = [jsontext.dumps(f.model_dump(exclude_unset=True)) + b"\n" for f in new]
    fresh = path.with_name(f"{FILE}.new")
    fresh.write_bytes(b"".join(lines))
    os.replace(fresh, path)  # noqa: PTH105 - the atomic one, by its name
    return sum(a != b for a, b in zip(old, new, strict=True))


def _updated(subject: Subject, fixture: Fixture) -> Fixture:
    if fixture.kind == "malformed":
        return fixture
    rewards = _rewards(subject, fixture)
    if fixture.expected_rewards is not None or len(rewards) > 1:
        return fixture.model_copy(update={"expected_rewards": rewards})
    return fixture.model_copy(update={"expected_reward": rewards[0]})


def _wrong(subject: Subject, fixture: Fixture) -> str | None:
    """What is wrong with a case; None when it holds."""
    if fixture.kind == "malformed":
        return _not_refused(subject, fixture)
    try:
        rewards = _rewards(subject, fixture)
        again = _rewards(subject, fixture) if fixture.kind == "determinism" else rewards
    except InfrastructureError:
        raise
    except RolloutError as e:
        return f"{type(e).__name__}: {e}"
    except Problem as e:
        return str(e)
    if again != rewards:
        return f"rewards {rewards}, and then {again}"
    expected = [fixture.expected_reward] if fixture.expected_rewards is None else fixture.expected_rewards
    if rewards != expected:
        return f"rewards {rewards}, expected {expected}"
    return _off_the_end(subject, fixture, rewards)


def _off_the_end(subject: Subject, fixture: Fixture, rewards: Sequence[float]) -> str | None:
    """Full and zero rewards are the ends of the manifest's range exactly; in a group the best is full, all are zero."""
    reward = subject.entry.manifest.reward
    if reward is None or fixture.kind == "determinism":
        return None
    zero, full = reward.range if reward.higher_is_better else reward.range[::-1]
    if fixture.kind == "full_reward":
        return None if full in rewards else f"no full reward ({full:g}) among {rewards}"
    return None if set(rewards) == {zero} else f"rewards {rewards} are not zero ({zero:g})"


def _rewards(subject: Subject, fixture: Fixture) -> list[float]:
    verdicts = scored(_ready(subject, fixture), *fixture.answers)
    for verdict in verdicts:
        within_range(subject, verdict)
    return [v.reward for v in verdicts]


def _ready(subject: Subject, fixture: Fixture) -> EnvironmentHarness:
    """The rollout as it is when it comes to be scored."""
    judge = None if fixture.judge is None else ScriptedModel(*fixture.judge)
    harness = subject.seeded(fixture.row, judge=judge)
    for call in fixture.calls:
        output = harness.call(call.name, call.arguments).output
        if call.output is not None and output != call.output:
            raise Problem(f"tool {call.name} said {output[:200]!r}, expected {call.output[:200]!r}")
    for turn in fixture.turns:
        harness.respond(response(turn))
    return harness


def _not_refused(subject: Subject, fixture: Fixture) -> str | None:
    try:
        rewards = _rewards(subject, fixture)
    except InfrastructureError:
        raise
    except RolloutError as e:
        wanted = fixture.expected_error or ""
        return None if wanted in str(e) else f"refused with {str(e)!r}, expected {wanted!r}"
    return f"it was not refused; rewards {rewards}"
