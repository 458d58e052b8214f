"""One call through the gateway: asked in any of the three APIs, made by a model's client, recorded, answered.

Invariant: a call ends with one `Outcome`, whatever happened; its record is on disk before the outcome is known to the
caller, and recording never changes the answer.
"""

from __future__ import annotations

import asyncio
import secrets
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import Any

import structlog

from schemas import jsontext
from schemas.errors import DataError, ModelError, RolloutError, RolloutTimeout
from services.gateway.captures import Captures
from services.gateway.record import CallRecord, category
from services.gateway.surfaces.surface import EXTRA, Surface
from services.models.client import PolicyClient
from services.models.convert.chat_messages import TOKEN_FIELDS
from services.models.options import Engine

_log = structlog.get_logger(__name__)


@dataclass(frozen=True, slots=True)
class Asked:
    """A request as it came in. `rollout_id` is empty for a call that belongs to none."""

    surface: Surface
    body: Mapping[str, Any]
    rollout_id: str = ""
    key: str = ""
    session: str = ""


@dataclass(frozen=True, slots=True)
class Outcome:
    """A Responses object, or a status and why there is none."""

    response: dict[str, Any] | None
    status: int = 200
    message: str = ""


class Caller:
    """Makes calls. `models` are clients by name: the one that a request's `model` names, else `policy`."""

    def __init__(
        self,
        models: Mapping[str, PolicyClient],
        captures: Captures | None,
        *,
        wall: Callable[[], float] = time.time,
        new_id: Callable[[], str] = lambda: secrets.token_hex(16),
    ) -> None:
        self._models = models
        self._captures = captures
        self._wall = wall
        self._new_id = new_id

    async def call(self, asked: Asked) -> Outcome:
        """The outcome of a call. Raises only when it is cancelled; its marker then stays (`incomplete`)."""
        name = self._name(asked)
        record = CallRecord(self._new_id(), asked.surface.name, name, self._wall(), request=asked.body)
        await self._keep(asked, record)
        outcome = await self._made(asked, name, record.model_call_id)
        await self._keep(asked, _ended(record, outcome, asked, self._wall()), outcome)
        return outcome

    def client(self, asked: Asked) -> PolicyClient:
        """The client that a request's model means."""
        return self._models[self._name(asked)]

    def _name(self, asked: Asked) -> str:
        wanted = asked.body.get("model")
        return wanted if isinstance(wanted, str) and wanted in self._models else "policy"

    async def _made(self, asked: Asked, name: str, call_id: str) -> Outcome:
        client = self._models[name]
        try:
            request = _request(asked, client)
            key = asked.key or f"{asked.rollout_id or 'call'}/{call_id}"
            reply = await client.create(
                jsontext.dumps(request), idempotency_key=key, session=asked.session or asked.rollout_id or key
            )
        except RolloutError as e:
            return Outcome(None, _status(e), f"{e} {e.detail}".strip())
        except Exception as e:  # noqa: BLE001 - a defect of ours costs one call, and is told as one
            _log.exception("gateway_call_failed", surface=asked.surface.name)
            return Outcome(None, 500, f"the gateway failed: {type(e).__name__}")
        return Outcome(reply.body)

    async def _keep(self, asked: Asked, record: CallRecord, outcome: Outcome | None = None) -> None:
        captures = self._captures
        if captures is None or not asked.rollout_id:
            return
        try:
            if outcome is None:
                await asyncio.to_thread(captures.begin, asked.rollout_id, record)
            else:
                tokens = _tokens(asked.rollout_id, record, outcome.response)
                await asyncio.to_thread(captures.finish, asked.rollout_id, record, tokens)
        except OSError as e:  # a full disk must not cost the rollout (G1); the missing record is a gap
            _log.error("capture_not_written", rollout=asked.rollout_id, call=record.model_call_id, error=str(e))


def _request(asked: Asked, client: PolicyClient) -> dict[str, Any]:
    """The Responses request; what it has no word for goes along as `extra_body`, where the engine takes one (D3)."""
    try:
        request = asked.surface.request(asked.body)
    except (AttributeError, KeyError, TypeError, ValueError) as e:
        raise DataError(f"the request cannot be read: {type(e).__name__}: {e}") from e
    extra = request.pop(EXTRA, None)
    if extra and client.endpoint.options.engine is not Engine.RESPONSES:
        metadata = request.get("metadata")
        kept = dict(metadata) if isinstance(metadata, Mapping) else {}
        request["metadata"] = {**kept, "extra_body": jsontext.dumps(extra).decode()}
    return {**request, "model": client.endpoint.name}


def _status(error: RolloutError) -> int:
    if isinstance(error, DataError):
        return 400
    if isinstance(error, RolloutTimeout):
        return 504
    return 502 if isinstance(error, ModelError) else 500


def _ended(record: CallRecord, outcome: Outcome, asked: Asked, now: float) -> CallRecord:
    """The record of a call that ended."""
    record = replace(record, completed_at=now, status_code=outcome.status, error_category=category(outcome.status))
    response = outcome.response
    if response is None:
        return replace(record, response=asked.surface.error(outcome.status, outcome.message))
    details = response.get("incomplete_details")
    return replace(
        record,
        response=asked.surface.reply(response, asked.body),
        usage=response.get("usage"),
        response_id=response.get("id"),
        model=response.get("model"),
        response_status=response.get("status"),
        finish_reason=details.get("reason") if isinstance(details, Mapping) else None,
    )


def _tokens(rollout_id: str, record: CallRecord, response: Mapping[str, Any] | None) -> dict[str, Any] | None:
    """D8's record of a call, where the engine told its tokens."""
    output = response["output"] if response is not None else []
    at = next((i for i, item in enumerate(output) if item.get(TOKEN_FIELDS[1]) is not None), None)
    if at is None:
        return None
    named = {field: output[at].get(field) for field in (*TOKEN_FIELDS, "routed_experts")}
    bare = [{k: v for k, v in item.items() if k not in named} for item in output]
    return {
        "schema_version": 1,
        "rollout_id": rollout_id,
        "model_call_id": record.model_call_id,
        "model": record.model,
        **named,
        "output_items": bare,
        "token_item_index": at,
        "created_at": record.started_at,
    }
