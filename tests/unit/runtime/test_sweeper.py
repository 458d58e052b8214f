"""Old claims go while a worker runs; a store that is away costs a turn."""

import asyncio
import os

from schemas.identity import RolloutRef
from services.runtime.claims import RETENTION_S, ClaimStore
from services.runtime.sweeper import ClaimSweeper

REF = RolloutRef("r", "t", 7, 1)


async def until(holds, timeout_s=5):
    async with asyncio.timeout(timeout_s):
        while not holds():  # noqa: ASYNC110 - another task's doing
            await asyncio.sleep(0.005)


async def test_what_is_older_than_any_event_goes_and_the_rest_stays(tmp_path):
    claims = ClaimStore(str(tmp_path / "claims"))
    await claims.pack(REF, "old", b"o" * 2_000_000)
    (old,) = [p for p in (tmp_path / "claims").rglob("old-*") if p.is_file()]
    await claims.pack(REF, "new", b"n" * 2_000_000)
    os.utime(old, (old.stat().st_mtime - RETENTION_S - 60,) * 2)
    sweeper = ClaimSweeper(claims, pause_s=0.02)
    await sweeper.start()
    await until(lambda: not old.exists())
    await sweeper.close()
    assert [p.name[:3] for p in (tmp_path / "claims").rglob("*-*") if p.is_file()] == ["new"]
    claims.close()


async def test_a_store_that_fails_is_tried_again():
    class Away:
        turns = 0

        async def sweep(self, limit):
            self.turns += 1
            raise OSError("away")

    away = Away()
    sweeper = ClaimSweeper(away, pause_s=0.001)
    await sweeper.start()
    await until(lambda: away.turns >= 3)
    await sweeper.close()
