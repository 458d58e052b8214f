"""Token ids and log-probabilities of one call, as a trainer needs them (platform.md A4, D8, D9).

Owns where they are found in a completion. Invariant: a sample is built from what the engine said and nothing else: a source
that is partial, two that disagree, or lengths that differ are an error, never a guess.
"""

from __future__ import annotations

import math
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from services.models.convert.chat_messages import TOKEN_FIELDS
from services.models.wire import UnusableReplyError

PROMPT, GENERATION, LOG_PROBS = TOKEN_FIELDS
ROUTED = "routed_experts"

_AS_TEXT = re.compile(r"token_id:([0-9]{1,12})", re.ASCII)
_CLOSE = 1e-4
"""Two copies of a log-probability may be written with different digits."""


@dataclass(frozen=True, slots=True)
class Tokens:
    """What is known of a call's tokens; `prompt` is None where the engine has to be asked for it."""

    prompt: list[int] | None
    generation: list[int]
    log_probs: list[float]
    routed_experts: Any = None

    def with_prompt(self, prompt: Any, counted: Any = None) -> Tokens:
        """With the prompt's ids as told elsewhere; `counted` is how many the engine says the prompt had."""
        ids = _ids(prompt, "the tokenized prompt")
        if isinstance(counted, int) and counted != len(ids):
            raise UnusableReplyError(f"the prompt has {counted} tokens by the engine's count and {len(ids)} when tokenized")
        return replace(self, prompt=ids)

    def fields(self) -> dict[str, Any]:
        """The fields for the last item of the call."""
        fields: dict[str, Any] = {PROMPT: self.prompt, GENERATION: self.generation, LOG_PROBS: self.log_probs}
        return fields if self.routed_experts is None else {**fields, ROUTED: self.routed_experts}

    def extends(self, seen: Sequence[int]) -> bool:
        """Whether the prompt begins with all tokens seen so far (D9)."""
        return self.prompt is not None and self.prompt[: len(seen)] == list(seen)


def found(completion: Mapping[str, Any], choice: Mapping[str, Any], message: Mapping[str, Any]) -> Tokens:
    """The tokens of a completion, chat or text. Raises `UnusableReplyError`.

    Sources in order: the three fields on the message; prompt and token ids beside it; ids inside the log-probabilities.
    """
    ids, log_probs = _entries(choice.get("logprobs"))
    sources = [s for s in (_own(message), _beside(completion, choice, log_probs)) if s is not None]
    if ids is not None and log_probs is not None:
        sources.append(_checked(Tokens(None, ids, log_probs)))
    if not sources:
        raise UnusableReplyError(
            "the engine sent no token ids with its answer; return_token_id_information needs one that knows "
            "return_token_ids or return_tokens_as_token_ids"
        )
    for other in sources[1:]:
        _agree(sources[0], other)
    return replace(sources[0], prompt=next((s.prompt for s in sources if s.prompt is not None), None))


def seen_before(messages: Sequence[Mapping[str, Any]]) -> list[int]:
    """All tokens up to the end of the last assistant turn that carries its own; empty when none does."""
    for message in reversed(messages):
        if message.get(GENERATION) is not None:
            return [*message[PROMPT], *message[GENERATION]]
    return []


def _own(message: Mapping[str, Any]) -> Tokens | None:
    present = [f for f in TOKEN_FIELDS if message.get(f) is not None]
    if not present:
        return None
    if len(present) < len(TOKEN_FIELDS):
        raise UnusableReplyError(f"the message has {', '.join(present)} but not all of {', '.join(TOKEN_FIELDS)}")
    prompt, generation = _ids(message[PROMPT], PROMPT), _ids(message[GENERATION], GENERATION)
    return _checked(Tokens(prompt, generation, _numbers(message[LOG_PROBS]), message.get(ROUTED)))


def _beside(completion: Mapping[str, Any], choice: Mapping[str, Any], log_probs: list[float] | None) -> Tokens | None:
    prompt = completion.get(PROMPT) if completion.get(PROMPT) is not None else choice.get(PROMPT)
    generation = choice.get("token_ids")
    if prompt is None and generation is None:
        return None
    if prompt is None or generation is None:
        raise UnusableReplyError("the engine sent only one of prompt_token_ids and token_ids")
    generated = _ids(generation, "token_ids")
    if log_probs is None and generated:
        raise UnusableReplyError("the engine sent token ids without their log-probabilities")
    return _checked(Tokens(_ids(prompt, PROMPT), generated, log_probs or [], choice.get(ROUTED)))


def _entries(logprobs: Any) -> tuple[list[int] | None, list[float] | None]:
    """The ids and log-probabilities in a choice's `logprobs`, of chat or text completions; None for what is not there."""
    if not isinstance(logprobs, Mapping):
        return None, None
    content = logprobs.get("content")
    if isinstance(content, list):
        entries = [e if isinstance(e, Mapping) else {} for e in content]
        names: list[Any] = [e.get("id", e.get("token")) for e in entries]
        return _named_ids(names), _numbers([e.get("logprob") for e in entries])
    texts, numbers = logprobs.get("tokens"), logprobs.get("token_logprobs")
    if isinstance(texts, list) and isinstance(numbers, list):
        return _named_ids(texts), _numbers(numbers)
    return None, None


def _named_ids(names: Sequence[Any]) -> list[int] | None:
    """Ids given as numbers or as `token_id:N`; None when the names are texts."""
    ids = [_named_id(n) for n in names]
    known = [i for i in ids if i is not None]
    if not known and names:
        return None
    if len(known) < len(ids):
        raise UnusableReplyError(f"{len(ids) - len(known)} of {len(ids)} log-probabilities have no token id")
    return known


def _named_id(name: Any) -> int | None:
    if isinstance(name, int) and not isinstance(name, bool):
        return name
    match = _AS_TEXT.fullmatch(name) if isinstance(name, str) else None
    return int(match[1]) if match else None


def _ids(value: Any, what: str) -> list[int]:
    if not isinstance(value, list) or not all(type(i) is int and i >= 0 for i in value):
        raise UnusableReplyError(f"{what} must be a list of token ids")
    return value


def _numbers(value: Any) -> list[float]:
    if not isinstance(value, list) or not all(type(n) in {int, float} and math.isfinite(n) for n in value):
        raise UnusableReplyError("a generated token has no log-probability")
    return value


def _checked(tokens: Tokens) -> Tokens:
    if len(tokens.generation) != len(tokens.log_probs):
        raise UnusableReplyError(
            f"the engine sent {len(tokens.generation)} generated tokens and {len(tokens.log_probs)} log-probabilities"
        )
    return tokens


def _agree(one: Tokens, other: Tokens) -> None:
    if one.generation != other.generation:
        raise UnusableReplyError("two places in the engine's answer disagree about the generated tokens")
    if one.prompt is not None and other.prompt is not None and one.prompt != other.prompt:
        raise UnusableReplyError("two places in the engine's answer disagree about the prompt's tokens")
    if not all(math.isclose(a, b, rel_tol=_CLOSE, abs_tol=_CLOSE) for a, b in zip(one.log_probs, other.log_probs, strict=True)):
        raise UnusableReplyError("two places in the engine's answer disagree about the log-probabilities")
