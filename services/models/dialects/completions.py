"""Engines asked for plain text completions: base models, or a chat template applied on our side (platform.md D3).

Invariant: the prompt is the caller's text, or what the tokenizer's template makes of the conversation; a request that has no
form as a prompt is an error.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Mapping, Sequence
from typing import Any

from schemas import jsontext
from schemas.errors import DataError, InfrastructureError
from services.models import audio, bodies, urls
from services.models.capture import TokenCapture
from services.models.convert import chat_reply, frame
from services.models.convert.chat_request import chat_request
from services.models.convert.parts import plain_text
from services.models.endpoint import ModelEndpoint
from services.models.template import ChatTemplate
from services.models.wire import Wire

_NOT_OURS = frozenset({"messages", "tools", "tool_choice", "parallel_tool_calls", "response_format", "reasoning_effort"})
"""Words of chat requests that text completions do not have."""


class Completions:
    """Text completions, one request for each call."""

    def __init__(self, endpoint: ModelEndpoint) -> None:
        self._options = options = endpoint.options
        self.url = urls.completions_url(endpoint)
        self._capture = TokenCapture(endpoint) if options.return_token_id_information else None
        self._template: ChatTemplate | None = None

    async def start(self) -> None:
        """Load the tokenizer where one is named; raises `InfrastructureError` when it has no template to apply."""
        if self._capture is not None:
            await self._capture.start()
            self._template = self._capture.template
        elif self._options.render_chat_template and self._options.tokenizer is not None:
            self._template = await asyncio.to_thread(ChatTemplate.load, self._options.tokenizer)
        if self._options.render_chat_template and (self._template is None or not self._template.has_template):
            raise InfrastructureError(
                f"render_chat_template: the tokenizer in {self._options.tokenizer} has no chat template", retryable=False
            )

    def prepare(self, body: bytes, key: str) -> Wire:
        request: dict[str, Any] = jsontext.loads_lenient(body)
        chat = chat_request(request)
        if audio.is_named(bodies.metadata_of(request)):
            raise DataError("audio cannot be sent to text completions")
        own = {k: v for k, v in chat.items() if k not in _NOT_OURS and k not in {"logprobs", "top_logprobs"}}
        sent = bodies.merged(own, request, self._options)
        kwargs = sent.pop(bodies.TEMPLATE_KWARGS, None)
        sent["prompt"] = self._prompt(chat, kwargs)
        if self._options.render_chat_template:
            sent.setdefault("add_special_tokens", False)  # the template has written them
        if self._capture is not None:
            # With sampling overrides on top: some engines want `logprobs` as a boolean here.
            sent = {**sent, "logprobs": 1, **self._capture.flags(()), **self._options.sampling_overrides}
        mark = frame.mark_of(key)
        follow = (lambda response: self._follow(response, sent)) if self._capture is not None else None
        return Wire(self.url, jsontext.dumps(sent), lambda raw: self._read(raw, request, sent, mark), follow)

    def _prompt(self, chat: Mapping[str, Any], kwargs: Any) -> str:
        messages = chat["messages"]
        if self._options.render_chat_template and self._template is not None:
            return self._template.render(messages, chat.get("tools"), kwargs)
        if chat.get("tools"):
            raise DataError("tools cannot be offered in a text completion without a chat template")
        return _raw_prompt(messages)

    def _read(self, raw: bytes, request: Mapping[str, Any], sent: Mapping[str, Any], mark: str) -> tuple[Any, str | None]:
        try:
            body = jsontext.loads_lenient(raw)
        except (ValueError, RecursionError) as e:
            return None, f"the body is not JSON: {e}" if raw else "the body is empty"
        try:
            choice = chat_reply.choice_of(body)
            if not isinstance(choice.get("text"), str):
                return None, "choices[0] has no text"
            whole = choice.get("finish_reason") not in {"length", "content_filter"}
            message = {"content": choice["text"]}
            parses = self._options.uses_reasoning_parser
            items = chat_reply.output_items(message, mark, parses_reasoning=parses, whole=whole)
            if self._capture is not None:
                items[-1] |= self._capture.fields(body, choice, {}, sent)
            return chat_reply.to_response(body, request, items, mark, int(time.time())), None
        except chat_reply.BadCompletionError as e:
            return None, str(e)

    def _follow(self, response: dict[str, Any], sent: Mapping[str, Any]) -> Wire | None:
        return self._capture.follow(response, sent) if self._capture is not None else None


def _raw_prompt(messages: Sequence[Mapping[str, Any]]) -> str:
    """One user message, with one system message before it or none."""
    roles = [m["role"] for m in messages]
    if roles not in (["user"], ["system", "user"], ["developer", "user"]):
        raise DataError(
            f"a text completion takes one user message, with at most one system message before it, not {len(roles)} messages "
            f"({', '.join(roles[:6])}); set render_chat_template to send conversations"
        )
    return "\n\n".join(plain_text(m["content"]) for m in messages)
