"""Token capture at one endpoint: what is asked for, and what becomes of the answer (platform.md D8, D9).

Invariant: an answer's last item carries all three token fields before anybody sees it, the prompt's ids told by the engine
or, where a tokenizer is named, rendered here and checked against the engine's count.
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from typing import Any

import structlog

from schemas import jsontext
from services.models import tokens, urls
from services.models.endpoint import ModelEndpoint
from services.models.reply import overflowed
from services.models.template import ChatTemplate
from services.models.wire import UnusableReplyError, Wire

_log = structlog.get_logger(__name__)

REQUIRED_PREFIX = "required_prefix_token_ids"
_TOKENIZED = (
    "model",
    "messages",
    "prompt",
    "tools",
    "chat_template_kwargs",
    "mm_processor_kwargs",
    "add_special_tokens",
    REQUIRED_PREFIX,
)
"""What decides about the prompt: the engine is asked to tokenize exactly that."""


class TokenCapture:
    """What one endpoint's calls need for their tokens."""

    def __init__(self, endpoint: ModelEndpoint) -> None:
        self._options = endpoint.options
        self._where = endpoint.base_url
        self._tokenize = urls.tokenize_url(endpoint)
        self.template: ChatTemplate | None = None
        self._warned = False

    async def start(self) -> None:
        """Load the tokenizer; raises `InfrastructureError`."""
        if self._options.tokenizer is not None and self.template is None:
            self.template = await asyncio.to_thread(ChatTemplate.load, self._options.tokenizer)

    def asked(self, messages: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
        """The fields of a chat request that ask for tokens."""
        return {"logprobs": True, "top_logprobs": 0, **self.flags(messages)}

    def flags(self, messages: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
        """Those of them that are alike for chat and text completions."""
        fields: dict[str, Any] = {"return_tokens_as_token_ids": True}
        if self._options.request_prompt_and_generation_token_ids:
            fields["return_token_ids"] = True
        seen = tokens.seen_before(messages) if self._options.send_required_prefix else []
        return {**fields, REQUIRED_PREFIX: seen} if seen else fields

    def fields(
        self, body: Mapping[str, Any], choice: Mapping[str, Any], message: Mapping[str, Any], sent: Mapping[str, Any]
    ) -> dict[str, Any]:
        """The token fields of a completion. The prompt's ids are None where they have to be asked for (`follow`)."""
        if sent.get("n", 1) != 1:
            raise UnusableReplyError(f"token ids need n = 1, the request asks for {sent['n']!r}")
        found = tokens.found(body, choice, message)
        if found.prompt is None and self.template is not None:
            found = found.with_prompt(self.template.ids(sent), _counted(body))
        if found.prompt is not None:
            self._check_prefix(found, sent)
        return found.fields()

    def follow(self, response: dict[str, Any], sent: Mapping[str, Any]) -> Wire | None:
        """The question for the prompt's ids; None when they are there."""
        last = response["output"][-1]
        if overflowed(response) or last.get(tokens.PROMPT, ()) is not None:
            return None

        def read(raw: bytes) -> tuple[Any, str | None]:
            ids = _told(raw)
            if isinstance(ids, str):
                return None, ids
            known = tokens.Tokens(None, last[tokens.GENERATION], last[tokens.LOG_PROBS], last.get(tokens.ROUTED))
            usage = response.get("usage") or {}
            whole = known.with_prompt(ids, usage.get("input_tokens"))
            self._check_prefix(whole, sent)
            output = [*response["output"][:-1], {**last, **whole.fields()}]
            return {**response, "output": output}, None

        return Wire(self._tokenize, jsontext.dumps({k: sent[k] for k in _TOKENIZED if k in sent}), read)

    def _check_prefix(self, found: tokens.Tokens, sent: Mapping[str, Any]) -> None:
        """A prompt that does not extend what was seen is a new segment, or an error: never unnoticed (D9)."""
        seen = tokens.seen_before(sent.get("messages") or ())
        if not seen or found.extends(seen):
            return
        if self._options.on_prefix_mismatch == "error":
            raise UnusableReplyError(
                f"the prompt's tokens do not begin with the {len(seen)} tokens seen before: the history was changed, or the "
                "engine tokenized it anew"
            )
        if not self._warned:
            self._warned = True
            _log.warning("token_prefix_broken", endpoint=self._where, seen=len(seen), note="said once; a new segment begins")


def _counted(body: Mapping[str, Any]) -> Any:
    usage = body.get("usage")
    return usage.get("prompt_tokens") if isinstance(usage, Mapping) else None


def _told(raw: bytes) -> Any:
    """The ids in an answer of `/tokenize`, or what is wrong with it."""
    try:
        body = jsontext.loads_lenient(raw)
    except (ValueError, RecursionError) as e:
        return f"/tokenize: the body is not JSON: {e}"
    return body["tokens"] if isinstance(body, dict) and isinstance(body.get("tokens"), list) else "/tokenize: no list `tokens`"
