"""GenRM comparison: a judge compares sibling answers to one prompt in pairs, and each gets the mean of what it was given."""

from __future__ import annotations

import asyncio
import hashlib
import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Literal

from pydantic import Field

from environments.common.judging import DEFAULT_CONCURRENCY, Judge, JudgeConfig, ModelName
from environments.common.template import Template
from environments.environment import Config, Context, Environment, Member, Response, Reverify, Task, Verdict
from environments.genrm_compare.comparing import Answer, Comparison, Pair, Strategy, by_group, metrics, pairs_of, rewards
from environments.genrm_compare.reading import verdict_in
from environments.genrm_compare.talk import Message, as_text, conversation_of
from schemas.errors import JudgeError

FAILED = "failed_comparisons"
"""Field of a result line: how many of the rollout's comparisons have neutral values."""

_HERE = Path(__file__).parent
_NOTHING_SAID = "None"
"""What the judge reads in the place of a blank answer."""


class GenrmTask(Task):
    """A prompt; `principle` is what the judge is to go by (sent with `use_principle`)."""

    principle: str | None = None
    prompt_id: Any = None


class GenrmConfig(Config):
    """Field names are the reference's, except the last three.

    `judge_input`: how the judge is asked: `prompt`, in words, for any chat model; `roles`, by messages with roles `principle`,
    `response_1` and `response_2`; `metadata`, by fields of that name, for an endpoint that makes the messages itself.
    `order`: what numbers the members of a group. `on_judge_failure`: `score` gives a pair whose call failed the neutral
    values; `fail` makes it the failure of the group.
    """

    genrm_model_server: ModelName = "genrm"
    genrm_responses_create_params: dict[str, Any] = Field(default_factory=dict)
    num_rollouts_per_prompt: int = 1
    comparison_strategy: Strategy = "circular"
    num_judges_per_comparison: int = Field(1, ge=1)
    use_principle: bool = False
    default_principle: str | None = None
    aggregator_method: Literal["simple_tiebreaker"] = "simple_tiebreaker"
    reasoning_bonus: float = 0.0
    answer_bonus: float = 0.0
    top_percentile: float = Field(0.2, ge=0, le=1)
    group_reasoning_length_penalty_coeff: float = 0.0
    group_answer_length_penalty_coeff: float = 0.0
    group_style_penalty_coeff: float = 0.0
    default_score: float = 3.0
    default_ranking: float = 3.5
    genrm_parse_retries: int = Field(3, ge=0, le=100)
    genrm_parse_retry_sleep_s: float = Field(0.2, ge=0, le=60)
    debug_logging: bool = False
    judge_input: Literal["prompt", "roles", "metadata"] = "prompt"
    order: Literal["arrival", "rollout_index"] = "arrival"
    on_judge_failure: Literal["score", "fail"] = "score"


class GenrmCompare(Environment):
    """Rewards an answer for being better than its siblings."""

    Task = GenrmTask
    Config = GenrmConfig
    reverify = Reverify.UNSUPPORTED
    scoring = "group"

    def __init__(self, config: Any = None) -> None:
        super().__init__(config)
        c = self.config
        self.judge = Judge(
            JudgeConfig(
                judge_model_server=c.genrm_model_server,
                judge_responses_create_params=c.genrm_responses_create_params,
                judge_endpoint_max_concurrency=DEFAULT_CONCURRENCY,
            )
        )
        places = ("principle", "conversation", "response_1", "response_2")
        self.template = Template.load("prompts/compare.txt", base=_HERE, places=places)
        self.principle = c.default_principle or (_HERE / "prompts/principle.txt").read_text("utf-8").strip()

    async def verify(self, task: GenrmTask, response: Response, state: Any, context: Context) -> Verdict:
        """An answer without siblings."""
        return (await self.verify_group([Member(task, response, state)], context))[0]

    async def verify_group(self, members: Sequence[Member], context: Context) -> list[Verdict]:
        """Members whose prompt or principle differs are compared only with their like."""
        verdicts: dict[int, Verdict] = {}
        groups = by_group([self.group_key(m.task) for m in members]).values()
        for indexes, found in zip(
            groups, await asyncio.gather(*(self._group(members, g, context) for g in groups)), strict=True
        ):
            verdicts.update(zip(indexes, found, strict=True))
        return [verdicts[i] for i in range(len(members))]

    def group_key(self, task: GenrmTask) -> str:
        """What siblings have in common: the request's input and the principle, under the task's index or `prompt_id`."""
        common = [task.responses_create_params.get("input"), task.principle]
        digest = hashlib.sha256(json.dumps(common, sort_keys=True, separators=(",", ":")).encode()).hexdigest()
        index = (task.model_extra or {}).get("_ng_task_index")
        prefix = index if index is not None else task.prompt_id
        return digest if prefix is None else f"{prefix}:{digest}"

    def notes(self, lines: Sequence[Mapping[str, float | None]]) -> list[str]:
        """How many rewards hold neutral values in the place of a verdict: such a reward looks like any other."""
        hit = sum(bool(line.get(FAILED)) for line in lines)
        if not hit:
            return []
        said = f"{hit:,} of {len(lines):,} rollouts have comparisons that the judge failed or that could not be read"
        return [f"{said}; these count as {self.config.default_score:g} for both (field {FAILED})"]

    async def arrived(self, members: Sequence[Member], size: int, context: Context) -> list[Comparison]:
        """The comparisons that can be made in a group of `size` of which only `members` are here."""
        pairs = [p for p in pairs_of(size, self.config.comparison_strategy) if max(p) < len(members)]
        task = members[0].task
        talk = conversation_of(task.responses_create_params.get("input"))
        return await self.comparisons(talk, [answer_of(m.response) for m in members], pairs, task.principle, context)

    async def compare(
        self, talk: Sequence[Message], answers: Sequence[Answer], principle: str | None, context: Context
    ) -> dict[str, Any]:
        """The batch call of the reference: `rewards`, `comparison_results` and `metrics` for answers to one conversation."""
        pairs = pairs_of(len(answers), self.config.comparison_strategy)
        if not pairs:
            return {"rewards": [self.config.default_score] * len(answers), "comparison_results": None, "metrics": None}
        made = await self.comparisons(talk, answers, pairs, principle, context)
        found = rewards(made, answers, self.config)
        return {"rewards": found, "comparison_results": [c.result for c in made], "metrics": metrics(made)}

    async def comparisons(
        self, talk: Sequence[Message], answers: Sequence[Answer], pairs: Sequence[Pair], principle: str | None, context: Context
    ) -> list[Comparison]:
        """What the judge says of each pair in each pass, in this order; calls run at the same time."""
        said = (principle or self.principle) if self.config.use_principle else None
        calls = [
            self._compared(talk, answers, pair, index, said, context)
            for index in range(self.config.num_judges_per_comparison)
            for pair in pairs
        ]
        return list(await asyncio.gather(*calls))

    async def _group(self, members: Sequence[Member], indexes: Sequence[int], context: Context) -> list[Verdict]:
        """The verdicts on members that belong together."""
        places = list(range(len(indexes)))
        if self.config.order == "rollout_index":
            places.sort(key=lambda i: members[indexes[i]].rollout_index)
        ordered = [members[indexes[i]] for i in places]
        if self.config.num_rollouts_per_prompt <= 1:
            return [Verdict(self.config.default_score) for _ in indexes]
        made = await self.arrived(ordered, len(ordered), context)
        found = rewards(made, [answer_of(m.response) for m in ordered], self.config)
        verdicts = [_verdict(reward, made, i) for i, reward in enumerate(found)]
        return [verdicts[places.index(i)] for i in range(len(indexes))]

    async def _compared(
        self,
        talk: Sequence[Message],
        answers: Sequence[Answer],
        pair: Pair,
        index: int,
        principle: str | None,
        context: Context,
    ) -> Comparison:
        c, (i, j) = self.config, pair
        given = {"response_1": _shown(answers[i]), "response_2": _shown(answers[j])}
        messages, params = self._request(talk, given, principle)
        found = await self._asked(messages, params, f"{i},{j}", context)
        neutral = {"score_1": c.default_score, "score_2": c.default_score, "ranking": c.default_ranking}
        return Comparison(i, j, index, **{**neutral, **(found or {})}, failed=found is None)

    async def _asked(
        self, messages: Sequence[Message], params: Mapping[str, Any], pair: str, context: Context
    ) -> dict[str, float] | None:
        """The judge's verdict; None when it failed, or said nothing readable however often it was asked."""
        for attempt in range(self.config.genrm_parse_retries + 1):
            if attempt:
                await asyncio.sleep(self.config.genrm_parse_retry_sleep_s)
            try:
                reply = await self.judge.send(context, messages, purpose=pair, **params)
            except JudgeError as e:
                if self.config.on_judge_failure == "fail":
                    raise
                if not _is_json(e.detail):
                    return None
                continue  # an error that came as JSON is, to the reference, a reply that cannot be read
            found = verdict_in(_text(reply.response))
            if found is not None:
                return found
        return None

    def _request(
        self, talk: Sequence[Message], given: Mapping[str, str], principle: str | None
    ) -> tuple[list[Message], dict[str, Any]]:
        """Input and further parameters of a call."""
        said = {"principle": principle, **given} if principle is not None else dict(given)
        if self.config.judge_input == "metadata":
            return list(talk), {"metadata": said}
        if self.config.judge_input == "roles":
            return [*talk, *({"role": role, "content": text} for role, text in said.items())], {}
        values = {"conversation": as_text(talk), "principle": principle or self.principle, **given}
        return [{"role": "user", "content": self.template.fill(values)}], {}


def answer_of(response: Response) -> Answer:
    """A response as it is compared."""
    summaries = [part for item in response.output if item.get("type") == "reasoning" for part in _parts(item.get("summary"))]
    return Answer(_text(response), len("".join(summaries).strip()))


def _text(response: Response) -> str:
    """The `output_text` parts of all messages, with nothing between."""
    messages = (i for i in response.output if i.get("type", "message") == "message")
    return "".join(
        text
        for item in messages
        for text in ([item["content"]] if isinstance(item.get("content"), str) else _parts(item.get("content"), "output_text"))
    )


def _parts(parts: Any, kind: str | None = None) -> list[str]:
    found = [p for p in parts if isinstance(p, Mapping)] if isinstance(parts, list) else []
    return [p["text"] for p in found if isinstance(p.get("text"), str) and (kind is None or p.get("type") == kind)]


def _shown(answer: Answer) -> str:
    return answer.text if answer.text.strip() else _NOTHING_SAID


def _verdict(reward: float, made: Sequence[Comparison], index: int) -> Verdict:
    """A reward, and how many of its comparisons have neutral values where there are any."""
    failed = sum(c.failed for c in made if index in (c.response_i, c.response_j))
    return Verdict(reward, failed_comparisons=failed) if failed else Verdict(reward)


def _is_json(text: str) -> bool:
    try:
        json.loads(text)
    except (ValueError, RecursionError):
        return False
    return True
