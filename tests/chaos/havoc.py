"""The storm: kills by the clock, stops that outlast the group's session, the broker gone for a while.

Owns the pool of workers: whoever dies is replaced at once, as an orchestrator does. Invariant: a worker that had been
ready ends only by our hand; one that could not start while the broker was away is started again.
"""

from __future__ import annotations

import asyncio
import random
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass, field

from support.processes import Process

from rollstream.broker import LocalBroker

_SUPERVISE_S = 0.3
_RESTART_S = 1.0


@dataclass(frozen=True)
class Weather:
    """How hard it blows; times in seconds. `stop_s` is how long a stopped worker stays stopped."""

    every_s: float = 4.0
    stops: int = 3
    stop_s: float = 12.0
    outage_s: float = 5.0
    lasts_s: float = 45.0


@dataclass
class Havoc:
    """`make[n]()` starts the worker of place n; `story` is what was done, with the second of it."""

    make: list[Callable[[], Process]]
    rng: random.Random
    weather: Weather
    broker: LocalBroker | None = None
    pool: list[Process] = field(default_factory=list)
    story: list[str] = field(default_factory=list)
    own_ends: list[str] = field(default_factory=list)
    kills: int = 0
    stops: int = 0
    outages: int = 0
    _tasks: list[asyncio.Task[None]] = field(default_factory=list)
    _began: float = 0.0

    async def start(self) -> None:
        """Start the pool and wait until it works."""
        self.pool = [make() for make in self.make]
        await asyncio.gather(*(p.ready() for p in self.pool))

    async def blow(self) -> None:
        """The storm; returns when its time is over, all stopped workers go on and the broker is back."""
        self._began = time.monotonic()
        w = self.weather
        supervisor = asyncio.create_task(self._supervise())
        try:
            await asyncio.gather(self._kill(), *(self._stop(n) for n in range(w.stops)), self._outage())
            await asyncio.gather(*(p.ready(60) for p in self.pool if p.alive))
        finally:
            supervisor.cancel()
            for process in self.pool:
                if process.paused:
                    process.resume()
        say(*self.story)

    async def calm(self) -> list[int]:
        """End all workers in good order; their exit codes."""
        return list(await asyncio.gather(*(p.terminate() for p in self.pool)))

    async def _kill(self) -> None:
        end = self._began + self.weather.lasts_s
        while time.monotonic() + self.weather.every_s < end:
            await asyncio.sleep(self.weather.every_s)
            place = self._victim()
            self.pool[place].kill()
            self.kills += 1
            self._replace(place, "killed")

    def _victim(self) -> int:
        """A place whose worker runs; all stages alike, however many workers they have."""
        running = {n: p.name for n, p in enumerate(self.pool) if not p.paused and p.alive}
        stage = self.rng.choice(sorted(set(running.values())))
        return self.rng.choice([n for n, name in running.items() if name == stage])

    async def _stop(self, number: int) -> None:
        share = max(0.0, self.weather.lasts_s - self.weather.stop_s) / max(1, self.weather.stops)
        await asyncio.sleep(share * (number + self.rng.random()))
        process = self.rng.choice([p for p in self.pool if p.alive and p.was_ready and not p.paused])
        process.pause()
        self._tell(f"{process!r} stopped")
        await asyncio.sleep(self.weather.stop_s)
        process.resume()
        self.stops += 1
        self._tell(f"{process!r} goes on")

    async def _outage(self) -> None:
        if self.broker is None or not self.weather.outage_s:
            return
        await asyncio.sleep((self.weather.lasts_s - self.weather.outage_s) * (0.3 + 0.4 * self.rng.random()))
        await self.broker.stop()
        self._tell("broker stopped")
        await asyncio.sleep(self.weather.outage_s)
        await self.broker.start()
        self.outages += 1
        self._tell("broker started")

    async def _supervise(self) -> None:
        while True:
            await asyncio.sleep(_SUPERVISE_S)
            for place, process in enumerate(self.pool):
                if not process.alive:
                    if process.was_ready:
                        self.own_ends.append(f"{process!r}:\n{process.tail()}")
                    await asyncio.sleep(_RESTART_S)
                    self._replace(place, "ended by itself")
                elif not process.was_ready and not process.paused:
                    await asyncio.to_thread(process.answers_ready)

    def _replace(self, place: int, why: str) -> None:
        self._tell(f"{self.pool[place]!r} {why}")
        self.pool[place] = self.make[place]()

    def _tell(self, what: str) -> None:
        self.story.append(f"{time.monotonic() - self._began:6.1f} s  {what}")


def say(*lines: str) -> None:
    """What happened, for whoever reads the test's output (`-s`, or a failure)."""
    sys.stdout.write("".join(f"{line}\n" for line in lines))
