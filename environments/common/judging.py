"""Asking a judge model and taking its answer: what judged environments share (judge.md).

Owns the call: parameters, limit, failure. `template`, `replies`, `labels` and `boundary` beside this module own the prompt
and the reading. Invariant: "the call failed" is a `JudgeError` (the rollout is judged again later) and nothing else; whatever
was received is a `JudgeReply`, and what it says is scored.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass
from typing import Annotated, Any, Literal, TypeVar

from pydantic import BeforeValidator, Field

from environments.common import replies
from environments.common.boundary import Boundary
from environments.common.limit import Limit
from environments.common.template import Template
from environments.context import Context
from environments.environment import Config
from environments.response import Response
from schemas.errors import JudgeError, ModelError, RolloutTimeout

T = TypeVar("T")

DEFAULT_CONCURRENCY = 64
"""Judge calls in flight per environment and worker process, as most of the reference's configurations have it."""

_PURPOSE: ContextVar[str] = ContextVar("purpose", default="")


def purpose() -> str:
    """What the judge call under way is for (`Judge.ask(purpose=…)`); recorders and scripted judges read it."""
    return _PURPOSE.get()


def _server_name(value: Any) -> Any:
    """The model's name in a reference such as `{type: responses_api_models, name: judge_model}`, or a plain name."""
    name = value.get("name") if isinstance(value, Mapping) else value
    return name.removesuffix("_model") if isinstance(name, str) else name


ModelName = Annotated[str, BeforeValidator(_server_name), Field(min_length=1)]
"""A named model (`models.NAME` in the settings). The reference's names fit: `judge_model` is `judge`."""


class JudgeConfig(Config):
    """Base configuration of judged environments; field names are the reference's.

    `judge_responses_create_params` is copied into every call. `on_judge_failure`: `fail` makes a failed call the rollout's
    failure (class `judge_failed`); `score` lets the environment score without it. `judge_boundary` hardens prompts.
    """

    judge_model_server: ModelName = "judge"
    judge_responses_create_params: dict[str, Any] = Field(default_factory=dict)
    judge_endpoint_max_concurrency: int | None = Field(DEFAULT_CONCURRENCY, ge=1)
    on_judge_failure: Literal["fail", "score"] = "fail"
    judge_boundary: bool = False


@dataclass(frozen=True, slots=True)
class JudgeReply:
    """One answered call: the parameters that were sent and the Responses object that came back."""

    request: Mapping[str, Any]
    response: Response

    @property
    def last_part(self) -> str | None:
        """See `replies.last_part`."""
        return replies.last_part(self.response)

    @property
    def last_message(self) -> str | None:
        """See `replies.last_message`."""
        return replies.last_message(self.response)

    @property
    def all_messages(self) -> str | None:
        """See `replies.all_messages`."""
        return replies.all_messages(self.response)

    def evaluation(self, label: str | None) -> dict[str, Any]:
        """The entry of `judge_evaluations` in a result line."""
        return {"responses_create_params": self.request, "response": self.response.body, "verdict_label": label}


class Judge:
    """The judge of one environment, as configured. Holds no state of rollouts; use it from any thread."""

    def __init__(self, config: JudgeConfig) -> None:
        self.config = config
        self._limit = Limit(config.judge_endpoint_max_concurrency)

    def prompt(
        self,
        context: Context,
        template: Template,
        values: Mapping[str, str],
        *,
        candidate: Iterable[str] = (),
        labels: Sequence[str] = (),
    ) -> str:
        """`template` filled with `values`.

        With `judge_boundary`, the values named in `candidate` (what the policy wrote) get a random boundary, in which no
        label of `labels` stands.
        """
        if not self.config.judge_boundary:
            return template.fill(values)
        boundary = Boundary.draw(context.rng, labels)
        guarded = {name: boundary.around(values[name]) for name in candidate if name in template.names}
        return f"{boundary.notice}\n\n{template.fill({**values, **guarded})}"

    async def ask(self, context: Context, prompt: str, *, system: str | None = None, purpose: str = "") -> JudgeReply:
        """One call with one user message, after a system message unless that is None or empty. Raises `JudgeError`.

        `purpose` tells calls of one verification apart that may run at the same time (the name of a check, "0,1" for a pair).
        """
        return await self.send(context, _messages(prompt, system), purpose=purpose)

    async def try_ask(
        self, context: Context, prompt: str, *, system: str | None = None, purpose: str = ""
    ) -> JudgeReply | JudgeError:
        """As `ask`; where the configuration says `on_judge_failure: score`, the error is returned instead of raised."""
        try:
            return await self.ask(context, prompt, system=system, purpose=purpose)
        except JudgeError as e:
            if self.config.on_judge_failure == "score":
                return e
            raise

    async def send(
        self, context: Context, messages: Sequence[Mapping[str, Any]], *, purpose: str = "", **params: Any
    ) -> JudgeReply:
        """One call with these input items; `params` go over the configured ones. Raises `JudgeError`."""
        request = {**self.config.judge_responses_create_params, **params, "input": list(messages)}
        client = context.model(self.config.judge_model_server)
        async with self._limit:
            with _for(purpose), _failing():
                return JudgeReply(request, await client.create(request))


async def both_orders(
    judge: Callable[[str, str], Awaitable[T]], first: str, second: str, equal: Callable[[T], bool]
) -> list[T]:
    """The sequential swap check (judge.md §4): `judge(first, second)`, and only when that says equal, the two exchanged.

    One or two evaluations; both orders agree when there are two and the second is `equal` as well.
    """
    given = await judge(first, second)
    return [given, await judge(second, first)] if equal(given) else [given]


def _messages(prompt: str, system: str | None) -> list[dict[str, Any]]:
    texts = [*([("system", system)] if system else []), ("user", prompt)]
    return [{"type": "message", "role": role, "content": text} for role, text in texts]


@contextmanager
def _for(purpose: str) -> Iterator[None]:
    token = _PURPOSE.set(purpose)
    try:
        yield
    finally:
        _PURPOSE.reset(token)


@contextmanager
def _failing() -> Iterator[None]:
    """A judge may be a model that reports its failures as such."""
    try:
        yield
    except (ModelError, RolloutTimeout) as e:
        raise JudgeError(str(e), detail=e.detail, retryable=e.retryable) from e
