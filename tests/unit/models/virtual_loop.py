"""An event loop whose clock jumps to the next timer when nothing is ready: time in tests costs none."""

import asyncio
import heapq


class VirtualLoop(asyncio.SelectorEventLoop):
    def __init__(self):
        super().__init__()
        self._virtual = 0.0

    def time(self):
        return self._virtual

    def _run_once(self):
        while self._scheduled and self._scheduled[0]._cancelled:  # or the loop would really wait for the one behind it
            heapq.heappop(self._scheduled)._scheduled = False
            self._timer_cancelled_count -= 1
        if not self._ready and self._scheduled:
            self._virtual = max(self._virtual, self._scheduled[0]._when)
        super()._run_once()


def run(main, budget_s=1e6):
    """Run a coroutine in virtual time; fails when it needs more than `budget_s` virtual seconds."""

    async def bounded():
        async with asyncio.timeout(budget_s):
            return await main

    with asyncio.Runner(loop_factory=VirtualLoop) as runner:
        return runner.run(bounded())
