"""Engines that speak Chat Completions: any provider, Azure OpenAI, vLLM, a reward model (platform.md D1, D3-D8).

Invariant: what goes out is the caller's request and the endpoint's options, by D3's precedence; what comes back is a whole
Responses object, with token fields exactly when they were asked for.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Mapping, Sequence
from typing import Any

from schemas import jsontext
from services.models import audio, bodies, genrm, urls
from services.models import reply as replies
from services.models.capture import TokenCapture
from services.models.convert import chat_reply, frame, think
from services.models.convert.chat_messages import TOKEN_FIELDS
from services.models.convert.chat_request import chat_request
from services.models.endpoint import ModelEndpoint
from services.models.options import Engine, EngineOptions
from services.models.wire import Wire


class Chat:
    """Chat Completions, one request for each call."""

    def __init__(self, endpoint: ModelEndpoint) -> None:
        self._options = options = endpoint.options
        self.url = urls.chat_url(endpoint)
        self._capture = TokenCapture(endpoint) if options.return_token_id_information else None

    async def start(self) -> None:
        """Load the tokenizer where one is named."""
        if self._capture is not None:
            await self._capture.start()

    def prepare(self, body: bytes, key: str) -> Wire | Awaitable[Wire]:
        request: dict[str, Any] = jsontext.loads_lenient(body)
        own = chat_request(request)
        metadata = bodies.metadata_of(request)
        if self._options.engine is Engine.VLLM and audio.is_named(metadata):
            return self._with_audio(request, own, metadata, key)
        return self._wire(request, own, key)

    async def _with_audio(self, request: dict[str, Any], own: dict[str, Any], metadata: Mapping[str, Any], key: str) -> Wire:
        found = await asyncio.to_thread(audio.urls, metadata, self._options.audio_root)
        return self._wire(request, {**own, "messages": audio.with_audio(own["messages"], found)}, key)

    def _wire(self, request: dict[str, Any], own: dict[str, Any], key: str) -> Wire:
        options, mark = self._options, frame.mark_of(key)
        own["messages"] = messages = _spoken(own["messages"], options)
        if options.engine is Engine.GENRM:
            own["messages"] = genrm.with_candidates(messages, bodies.metadata_of(request), options)
        elif not options.sequential_reasoning_allowed and _says_nothing(messages):
            return Wire(self.url, b"", replies.parse, answer=_filtered(request, mark))
        if self._capture is not None:
            own |= self._capture.asked(messages)
        body = bodies.merged(own, request, options)
        call = _Call(self, request, body, mark)
        return Wire(self.url, jsontext.dumps(body), call.read, call.follow if self._capture is not None else None)

    def respond(
        self, body: Mapping[str, Any], request: Mapping[str, Any], sent: Mapping[str, Any], mark: str
    ) -> dict[str, Any]:
        """The Responses object for a completion. Raises `BadCompletionError` and `UnusableReplyError`."""
        choice = chat_reply.choice_of(body)
        message = chat_reply.message_of(choice)
        whole = choice.get("finish_reason") not in {"length", "content_filter"}
        parses = self._options.uses_reasoning_parser
        items = chat_reply.output_items(message, mark, parses_reasoning=parses, whole=whole)
        if self._capture is not None:
            items[-1] |= self._capture.fields(body, choice, message, sent)
        return chat_reply.to_response(body, request, items, mark, int(time.time()))

    def follow(self, response: dict[str, Any], sent: Mapping[str, Any]) -> Wire | None:
        """What has to be asked besides for the tokens of the prompt."""
        return self._capture.follow(response, sent) if self._capture is not None else None


class _Call:
    """What is known of one call while its answer is awaited."""

    __slots__ = ("_dialect", "_mark", "_request", "_sent")

    def __init__(self, dialect: Chat, request: Mapping[str, Any], sent: Mapping[str, Any], mark: str) -> None:
        self._dialect, self._request, self._sent, self._mark = dialect, request, sent, mark

    def read(self, raw: bytes) -> tuple[Any, str | None]:
        """The answer as a Responses object."""
        try:
            body = jsontext.loads_lenient(raw)
        except (ValueError, RecursionError) as e:
            return None, f"the body is not JSON: {e}" if raw else "the body is empty"
        try:
            return self._dialect.respond(body, self._request, self._sent, self._mark), None
        except chat_reply.BadCompletionError as e:
            return None, str(e)

    def follow(self, response: dict[str, Any]) -> Wire | None:
        return self._dialect.follow(response, self._sent)


def _spoken(messages: Sequence[dict[str, Any]], options: EngineOptions) -> list[dict[str, Any]]:
    """The messages as this engine takes them."""
    return [_spoken_one(m, options) for m in messages]


def _spoken_one(message: dict[str, Any], options: EngineOptions) -> dict[str, Any]:
    if message["role"] == "developer" and options.replace_developer_role_with_system:
        return {**message, "role": "system"}
    if message["role"] != "assistant":
        return message
    if options.engine is Engine.AZURE:  # it refuses keys it does not know
        message = {k: v for k, v in message.items() if k not in TOKEN_FIELDS}
    if options.uses_reasoning_parser and not options.preserve_reasoning_in_assistant_content:
        return _reasoning_apart(message, options)
    return message


def _reasoning_apart(message: dict[str, Any], options: EngineOptions) -> dict[str, Any]:
    """An assistant message whose thoughts go where the engine's own template expects them, or nowhere."""
    content = message.get("content")
    if not isinstance(content, str):
        return message
    thoughts, rest = think.split(content)
    if not thoughts:
        return message
    message = {**message, "content": rest or None}
    if options.uses_interleaved_reasoning:
        message["reasoning_content"] = message["reasoning"] = "".join(thoughts)
    return message


def _says_nothing(messages: Sequence[Mapping[str, Any]]) -> bool:
    last = messages[-1] if messages else {}
    return last.get("role") == "assistant" and not last.get("content") and not last.get("tool_calls")


def _filtered(request: Mapping[str, Any], mark: str) -> dict[str, Any]:
    """The answer to a conversation that ends in thoughts alone (D6)."""
    empty = frame.message("", mark, whole=False)
    now, model = int(time.time()), request.get("model")
    return frame.response(request, [empty], mark=mark, created_at=now, model=model, finish="content_filter", usage=None)
