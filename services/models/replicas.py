"""One model behind several servers (platform.md D3).

Invariant: a session keeps to one server, which holds its prefix in its cache, for as long as that server can be reached;
each server has a gate and a breaker of its own.
"""

from __future__ import annotations

import hashlib
from collections import Counter
from types import TracebackType
from typing import Self

from services.models.client import PolicyClient
from services.models.endpoint import ModelEndpoint
from services.models.reply import ModelReply
from services.models.stats import Snapshot


def replica_of(session: str, count: int) -> int:
    """Which of `count` servers a session goes to: the first 8 bytes of its SHA-256, big-endian, modulo `count`."""
    return int.from_bytes(hashlib.sha256(session.encode("utf-8", "replace")).digest()[:8]) % count


class ReplicatedClient(PolicyClient):
    """`PolicyClient` for an endpoint with `replicas`. The bound of calls in flight is shared out among them."""

    def __init__(self, endpoint: ModelEndpoint) -> None:
        super().__init__(endpoint)
        urls = (endpoint.base_url, *endpoint.replicas)
        share = -(-endpoint.max_concurrency // len(urls))
        alike = {"replicas": (), "max_concurrency": share}
        self._clients = [PolicyClient(endpoint.model_copy(update={**alike, "base_url": url})) for url in urls]

    async def start(self) -> None:
        for client in self._clients:
            await client.start()

    async def close(self) -> None:
        for client in self._clients:
            await client.close()

    async def __aenter__(self) -> Self:
        await self.start()
        return self

    async def __aexit__(self, kind: type[BaseException] | None, error: BaseException | None, tb: TracebackType | None) -> None:
        await self.close()

    @property
    def is_down(self) -> bool:
        """Whether no replica can be reached."""
        return all(client.is_down for client in self._clients)

    async def create(
        self, body: bytes, *, idempotency_key: str, deadline: float | None = None, session: str | None = None
    ) -> ModelReply:
        """As `PolicyClient.create`, at the session's replica; a call without a session may go to any."""
        client = self._chosen(session if session is not None else idempotency_key)
        return await client.create(body, idempotency_key=idempotency_key, deadline=deadline)

    def snapshot(self) -> Snapshot:
        """Counts and states of all replicas together; the breaker's state is the best of them."""
        all_of = [client.snapshot() for client in self._clients]
        states = [s.breaker for s in all_of]
        return Snapshot(
            calls=sum(s.calls for s in all_of),
            answered=sum(s.answered for s in all_of),
            retried_calls=sum(s.retried_calls for s in all_of),
            overflows=sum(s.overflows for s in all_of),
            retries=dict(sum((Counter(s.retries) for s in all_of), Counter[str]())),
            failures=dict(sum((Counter(s.failures) for s in all_of), Counter[str]())),
            in_flight=sum(s.in_flight for s in all_of),
            waiting=sum(s.waiting for s in all_of),
            allowance=sum(s.allowance for s in all_of),
            breaker="closed" if "closed" in states else states[0],
        )

    def _chosen(self, session: str) -> PolicyClient:
        """The session's replica, or the next one that can be reached; its own when none can."""
        at, count = replica_of(session, len(self._clients)), len(self._clients)
        return next((c for c in (self._clients[(at + i) % count] for i in range(count)) if not c.is_down), self._clients[at])


def client_of(endpoint: ModelEndpoint) -> PolicyClient:
    """The client of an endpoint, with or without replicas."""
    return ReplicatedClient(endpoint) if endpoint.replicas else PolicyClient(endpoint)
