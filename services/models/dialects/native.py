"""Engines that speak Responses themselves (platform.md D1).

Invariant: the plain dialect sends the caller's bytes as they are; the other one changes only what its options name.
"""

from __future__ import annotations

from typing import Any

from yarl import URL

from schemas import jsontext
from services.models import bodies
from services.models import reply as replies
from services.models.endpoint import ModelEndpoint
from services.models.wire import Wire


class Plain:
    """Pass-through. The hot path: one tuple for each call."""

    def __init__(self, endpoint: ModelEndpoint) -> None:
        self.url = URL(endpoint.responses_url).update_query(endpoint.options.default_query)

    def prepare(self, body: bytes, key: str) -> Wire:  # noqa: ARG002 - the protocol's signature
        return Wire(self.url, body, replies.parse)

    async def start(self) -> None:
        """Nothing to load."""


class Adjusted(Plain):
    """Responses with fields added, pinned or dropped."""

    def __init__(self, endpoint: ModelEndpoint) -> None:
        super().__init__(endpoint)
        self._options = endpoint.options

    def prepare(self, body: bytes, key: str) -> Wire:  # noqa: ARG002
        options = self._options
        request: dict[str, Any] = jsontext.loads_lenient(body)
        if options.drop_input_reasoning_items and isinstance(request.get("input"), list):
            request["input"] = [i for i in request["input"] if not _is_reasoning(i)]
        if options.is_responses_native:
            own = {**request, "metadata": _left(bodies.metadata_of(request))}
            request = bodies.merged({k: v for k, v in own.items() if k != "metadata" or v}, request, options)
        else:
            request = {**options.extra_body, **request, **options.sampling_overrides}
        return Wire(self.url, jsontext.dumps(request), replies.parse)


def _is_reasoning(item: Any) -> bool:
    return isinstance(item, dict) and item.get("type") == "reasoning"


def _left(metadata: Any) -> dict[str, Any]:
    """Metadata without what the platform takes out of it."""
    return {k: v for k, v in metadata.items() if k not in {bodies.EXTRA_BODY, bodies.TEMPLATE_KWARGS}}
