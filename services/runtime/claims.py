"""The claim check: payloads too large for a record, kept beside Kafka and fetched by whoever needs them.

Owns the names of claims and the promise that what `get` returns is what was `put`. Invariant: a claim's name follows
from the rollout, its position and the size and CRC-32 of its bytes, so storing it twice changes nothing, and an event
needs to carry only the two numbers.

Small claims in a local directory are written and read on the event loop: a 64 KiB write takes 56 µs there and 124 µs
by way of a thread, a read 15 and 61 µs (CPython 3.11, one idle core of a two-core machine). Everything else goes through
a bounded thread pool, with a deadline and a retry budget.
"""

from __future__ import annotations

import asyncio
import random
import re
import zlib
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import TypeVar

from schemas import topics
from schemas.errors import DataError, InfrastructureError
from schemas.events import Claim, Payload
from schemas.identity import RolloutRef, is_id
from services.runtime.claim_cache import ByteCache
from services.runtime.claim_files import Directory, is_permanent, open_blobs

INLINE_IO = 64 << 10
"""Bytes up to which a local claim is written and read on the event loop (see the module's figures)."""

RETENTION_S = max(spec.retention_ms for spec in topics.ALL) / 1000 + 86_400
"""Age after which `sweep` may remove a claim: the longest retention of a topic whose events refer to it, and a day for
the rollout to get from the event that stored the claim to the last one that names it."""

_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]*/\d+-\d+/[A-Za-z0-9][A-Za-z0-9._-]*-\d+-[0-9a-f]{8}", re.ASCII)

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class Limits:
    """Bounds on work that leaves the event loop. Times are seconds; `attempts` is the retry budget of one put or get."""

    threads: int = 8
    waiting: int = 256
    deadline_s: float = 30.0
    attempts: int = 4
    backoff_s: float = 0.1


def claim_of(data: bytes) -> Claim:
    """Size and CRC-32 of `data`."""
    return Claim(len(data), zlib.crc32(data))


def claim_name(ref: RolloutRef, index: int | str, claim: Claim) -> str:
    """`RUN/TASK-ROLLOUT/INDEX-SIZE-CRC`; `index` is the payload's position in its rollout (a number or a short word).

    Raises `DataError` when a part could lead out of the store. Ids are checked where they enter; this is the second lock.
    """
    name = f"{ref.run_id}/{ref.task_index}-{ref.rollout_index}/{index}-{claim.size}-{claim.crc:08x}"
    if not is_id(ref.run_id) or _NAME.fullmatch(name) is None:
        raise DataError(
            f"{name!r} cannot name a claim: ids begin with a letter or digit, then letters, digits, '.', '_' or '-'"
        )
    return name


def inline(payload: Payload) -> bytes | None:
    """The payload's bytes when they travel in the event, None when they have to be fetched (`ClaimStore.unpack`)."""
    return None if payload.size else payload.data


class ClaimStore:
    """Claims at `url` (a directory, or an fsspec URL), with a memory cache of `cache_bytes`. Belongs to one event loop."""

    def __init__(self, url: str, cache_bytes: int = 64 << 20, limits: Limits = Limits()) -> None:
        self._blobs = open_blobs(url)
        self._cache = ByteCache(cache_bytes)
        self._limits = limits
        self._pool = ThreadPoolExecutor(limits.threads, thread_name_prefix="claims")
        self._slots = asyncio.Semaphore(limits.waiting)

    @property
    def where(self) -> str:
        """The store's place, for messages; credentials in a URL are masked."""
        return self._blobs.where

    async def put(self, name: str, data: bytes) -> None:
        """Store `data`, whole and at once. Putting a name again replaces it by the same bytes, which heals a torn file.

        Raises `InfrastructureError` when the store cannot take it within the deadline and the retry budget.
        """
        _check_name(name)
        try:
            await self._do(lambda: self._blobs.write(name, data), len(data))
        except FileNotFoundError as e:
            raise InfrastructureError(f"claim {name} cannot be stored in {self.where}: {e}") from e
        self._cache.put(name, data)

    async def get(self, name: str, claim: Claim) -> bytes:
        """The bytes of a claim, checked against its size and CRC.

        Raises `InfrastructureError` when it is missing, is not what was stored, or cannot be read in time.
        """
        cached = self._cache.get(name)
        if cached is not None:
            return cached
        _check_name(name)
        try:
            data = await self._do(lambda: self._blobs.read(name), claim.size)
        except FileNotFoundError as e:
            raise InfrastructureError(
                f"claim {name} is not in {self.where}: it was removed before the events that refer to it, "
                "or this worker has another claim store than the one that stored it"
            ) from e
        if claim_of(data) != claim:
            raise InfrastructureError(
                f"claim {name} in {self.where} is damaged: {len(data):,} bytes with CRC {zlib.crc32(data):08x}, "
                f"expected {claim.size:,} with {claim.crc:08x}"
            )
        self._cache.put(name, data)
        return data

    async def keep(self, ref: RolloutRef, index: int | str, data: bytes) -> Claim:
        """Store `data` at position `index` of the rollout; what it returns is what the event has to carry."""
        claim = claim_of(data)
        await self.put(claim_name(ref, index, claim), data)
        return claim

    async def fetch(self, ref: RolloutRef, index: int | str, claim: Claim) -> bytes:
        """The bytes that `keep` stored."""
        return await self.get(claim_name(ref, index, claim), claim)

    async def pack(self, ref: RolloutRef, index: int | str, data: bytes, limit: int = topics.INLINE_LIMIT) -> Payload:
        """`data` as a payload: inside the event up to `limit` bytes, as a claim above."""
        if len(data) <= limit:
            return Payload(data)
        claim = await self.keep(ref, index, data)
        return Payload(size=claim.size, crc=claim.crc)

    async def unpack(self, ref: RolloutRef, index: int | str, payload: Payload) -> bytes:
        """The payload's bytes, wherever they are. On the hot path ask `inline` first: it needs no await."""
        data = inline(payload)
        return data if data is not None else await self.fetch(ref, index, Claim(payload.size, payload.crc))

    async def sweep(self, older_than_s: float = RETENTION_S, limit: int = 10_000) -> int:
        """Remove claims not written for `older_than_s`, looking at `limit` entries a call; returns how many went.

        Object stores do this themselves by a lifecycle rule; for those it does nothing.
        """
        blobs = self._blobs
        return await self._in_pool(lambda: blobs.sweep(older_than_s, limit)) if isinstance(blobs, Directory) else 0

    def close(self) -> None:
        """Take no more work. A thread in the middle of a call ends by itself; the interpreter waits for it at its exit."""
        self._pool.shutdown(wait=False, cancel_futures=True)

    async def _do(self, action: Callable[[], T], size: int) -> T:
        if self._blobs.local and size <= INLINE_IO:
            try:
                return action()
            except OSError as e:
                self._give_up_if_permanent(e)
        return await self._in_pool(action)

    async def _in_pool(self, action: Callable[[], T]) -> T:
        """Run `action` in a thread; `FileNotFoundError` passes, all else becomes an `InfrastructureError`."""
        limits = self._limits
        last: Exception | None = None
        try:
            async with asyncio.timeout(limits.deadline_s):
                for attempt in range(limits.attempts):
                    if attempt:  # full jitter: workers that failed together do not come back together
                        await asyncio.sleep(random.uniform(0, limits.backoff_s * 2**attempt))  # noqa: S311 - no secret
                    try:
                        return await self._thread(action)
                    except Exception as e:  # noqa: BLE001 - each fsspec file system has errors of its own
                        self._give_up_if_permanent(e)
                        last = e
        except TimeoutError as e:
            raise InfrastructureError(
                f"the claim store {self.where} did not answer within {limits.deadline_s:g} s", detail=str(last or "")
            ) from e
        raise InfrastructureError(f"the claim store {self.where} failed {limits.attempts} times: {last!r}") from last

    async def _thread(self, action: Callable[[], T]) -> T:
        await self._slots.acquire()
        future = asyncio.wrap_future(self._pool.submit(action))
        # A thread cannot be interrupted: its slot is free when the thread is, not when we stop waiting for it.
        future.add_done_callback(self._release)
        return await asyncio.shield(future)

    def _release(self, future: asyncio.Future[T]) -> None:
        self._slots.release()
        if not future.cancelled():
            future.exception()  # retrieved, or asyncio reports it as forgotten when nobody waits any more

    def _give_up_if_permanent(self, error: Exception) -> None:
        if isinstance(error, FileNotFoundError):
            raise error
        if is_permanent(error):
            raise InfrastructureError(f"the claim store {self.where} refuses: {error}") from error


def _check_name(name: str) -> None:
    if _NAME.fullmatch(name) is None:
        raise DataError(f"{name!r} cannot name a claim (see claim_name)")


def claim_in_name(name: str) -> Claim:
    """Size and CRC that a claim's name holds; raises `DataError` when it is not a claim's name."""
    _check_name(name)
    _, size, crc = name.rsplit("-", 2)
    return Claim(int(size), int(crc, 16))
