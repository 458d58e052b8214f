"""Pairs to results: where each verification runs, and how many at once.

Owns the schedule. A verifier that is a plain function computes, so it goes in batches to processes, on all processors; one
that waits (a judge, a sandbox) and one that scores groups run in this process, as on a worker. Invariants: every pair gets one
result; a process that a verifier kills or holds up costs that verifier's rollout alone.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from inspect import iscoroutinefunction

from environments.environment import Environment
from environments.verdict import Verdict
from rollstream.reverify.batch import SLICE_S, Loaded, Result, Source, score_batch
from rollstream.reverify.group import Siblings, score_group
from rollstream.reverify.guard import Verifier
from rollstream.reverify.pairing import Pair
from schemas.errors import RolloutError, RolloutTimeout, VerifierError
from services.runtime.clients import Clients
from services.verifier_worker.judge_calls import JUDGE_CALLS
from services.verifier_worker.verifying import Verifying

BATCH = 128
"""Pairs of a batch: handing it over costs 100 µs, which is 1 µs a rollout. A smaller one spreads better at the end."""

_AHEAD = 2
"""Batches per process: one that is worked on, one that waits."""

Emit = Callable[[Verifier, Sequence[Result]], None]
"""Takes results as they come."""

Work = Callable[[], Awaitable[None]]


def waits(environment: Environment) -> bool:
    """Whether it is verified in this process: it may ask a model, or it needs a whole group."""
    return environment.scoring == "group" or iscoroutinefunction(type(environment).verify)


@dataclass(frozen=True, slots=True)
class Engine:
    """Verifies pairs. `concurrency` bounds the verifications in this process, `processes` the others.

    `reuse` answers model calls from the record in the stored line, where there is one.
    """

    source: Source
    verifying: Verifying
    clients: Clients
    concurrency: int
    processes: int
    emit: Emit
    reuse: bool = False

    async def run(self, pairs: Mapping[str, Sequence[Pair]], verifiers: Mapping[str, Verifier], siblings: Siblings) -> None:
        """Verify `pairs`, by variant. Raises `DataError` when the files change under it."""
        batches, alone = [], []
        for variant, some in pairs.items():
            verifier = verifiers[variant]
            if verifier.environment.scoring == "group":
                alone += list(self._groups(verifier, some, siblings))
            elif waits(verifier.environment):
                alone += [self._one(verifier, pair) for pair in some]
            else:
                batches += [self._batch(verifier, some[i : i + BATCH]) for i in range(0, len(some), BATCH)]
        await drain(batches, self.processes * _AHEAD)
        await drain(alone, self.concurrency)

    # --- in other processes ---

    def _batch(self, verifier: Verifier, pairs: Sequence[Pair]) -> Work:
        async def work() -> None:
            left = list(pairs)
            while left:
                done = await self._scored(verifier, left)
                self.emit(verifier, done)
                left = left[len(done) :]

        return work

    async def _scored(self, verifier: Verifier, pairs: list[Pair]) -> list[Result]:
        """Results of the first of `pairs`; when their process dies or is held up, each is tried by itself."""
        assert self.clients.pool is not None
        timeout_s = self.verifying.timeout_s + SLICE_S
        try:
            some = [tuple(pair) for pair in pairs]
            found = await self.clients.pool.run(score_batch, self.source, verifier.stamp, some, timeout_s=timeout_s)
            return [Result._make(result) for result in found]
        except (RolloutTimeout, VerifierError) as e:
            if len(pairs) == 1:
                return [Loaded.of(self.source, pairs[0]).failed(self.source, verifier.stamp, e)]
            return [result for pair in pairs for result in await self._scored(verifier, [pair])]

    # --- in this one ---

    def _one(self, verifier: Verifier, pair: Pair) -> Work:
        async def work() -> None:
            loaded = Loaded.of(self.source, pair)
            try:
                result = loaded.scored(self.source, verifier.stamp, await self._verdict(verifier, loaded))
            except RolloutError as e:
                result = loaded.failed(self.source, verifier.stamp, e)
            self.emit(verifier, [result])

        return work

    async def _verdict(self, verifier: Verifier, loaded: Loaded) -> Verdict:
        recorded = recorded_calls(loaded) if self.reuse else ()
        return await self.verifying.verdict(verifier.environment, loaded.subject(verifier.variant), loaded.row, recorded)

    def _groups(self, verifier: Verifier, pairs: Sequence[Pair], siblings: Siblings) -> Iterator[Work]:
        tasks: dict[int, list[Pair]] = {}
        for pair in pairs:
            tasks.setdefault(pair.task, []).append(pair)
        for members in tasks.values():
            yield self._group(verifier, members, siblings)

    def _group(self, verifier: Verifier, members: Sequence[Pair], siblings: Siblings) -> Work:
        async def work() -> None:
            group = siblings.group(self.source, members)
            recorded = [call for m in group.members for call in recorded_calls(m)] if self.reuse else []
            self.emit(verifier, await score_group(self.source, self.verifying, verifier, group, recorded))

        return work


async def drain(works: Iterable[Work], limit: int) -> None:
    """Do all of `works`, at most `limit` at a time; the first that raises ends the others and is raised."""
    left = iter(works)

    async def hand() -> None:
        for work in left:
            await work()

    hands = [asyncio.create_task(hand()) for _ in range(limit)]
    try:
        await asyncio.gather(*hands)
    finally:
        for task in hands:
            task.cancel()
        await asyncio.gather(*hands, return_exceptions=True)


def recorded_calls(loaded: Loaded) -> Sequence[object]:
    """The model calls of the stored verification, as far as the line has them."""
    calls = loaded.stored.get(JUDGE_CALLS)
    return calls if isinstance(calls, list) else ()
