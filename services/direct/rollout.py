"""A whole rollout in one process: seed, turns, verification, line.

Invariant: a rollout ends as exactly one line (platform.md A7) or one `RolloutError`, and however it ends, what its
environment holds for it is freed.
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from environments.environment import Seed
from environments.registry import Binding
from environments.tools import with_tools
from environments.verdict import Verdict
from schemas.errors import RolloutTimeout
from schemas.identity import RolloutRef
from schemas.rows import PARAMS
from services.direct.episode import Episode
from services.direct.playing import Moved, Observe, Play, Played
from services.direct.services import Services
from services.verifier_worker.line import result_line


@dataclass(frozen=True, slots=True)
class Scored:
    """A finished rollout: its verdict and its result line."""

    verdict: Verdict
    line: bytes


class Rollout:
    """One rollout of a checked `row`. `played` holds its trajectory once the agent has finished, scored or not."""

    def __init__(self, services: Services, binding: Binding, ref: RolloutRef, row: Mapping[str, Any]) -> None:
        self.row = row
        self.ref = ref
        self.played: Played | None = None
        self._services = services
        self._episode = Episode(services, binding, ref, row)

    async def run(self, observe: Observe = lambda _: None) -> Scored:
        """Play it and score it; raises the `RolloutError` that ended it."""
        deadline_s = self._services.deadlines.rollout_s
        try:
            async with asyncio.timeout(deadline_s):
                self.played = await self._play(await self._episode.seed(), observe)
            return await self._scored(self.played)
        except TimeoutError as e:
            raise RolloutTimeout(f"the rollout was not finished within {deadline_s:g} s") from e
        finally:
            await self._episode.forget()

    async def _play(self, seed: Seed, observe: Observe) -> Played:
        if seed.items:
            observe(Moved(seed.items, done=False))
        params = with_tools(self.row[PARAMS], seed.tools)
        return await Play(self._services, self._episode, params, seed.items, observe).run()

    async def _scored(self, played: Played) -> Scored:
        binding = self._episode.binding
        verdict = await self._episode.verify(self.row, played.response)
        line = result_line(self.ref, binding.agent_name, self.row, played.response, verdict, played.result)
        return Scored(verdict, line)
