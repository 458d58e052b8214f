"""Makes the archive of classes linked ahead of time. Run as `python -m rollstream.broker.train ARCHIVE`, see `archive`.

Invariants: one maker at a time; when the pipe on its stdin closes (its starter ended) it stops and leaves nothing behind.
"""

from __future__ import annotations

import asyncio
import fcntl
import os
import shutil
import stat
import sys
import tempfile
from pathlib import Path

from rollstream.broker.archive import SUFFIX
from rollstream.broker.exercise import exercise
from rollstream.broker.local import LocalBroker

_NICE = 19
_SCRATCH = "train-"
_WRITE_S = 60.0  # writing the archive takes 7 s of an idle core, and we are the last to get one


async def train(archive: Path) -> None:
    """Run a broker through what every run does, and keep what its JVM learned."""
    for leftover in archive.parent.glob(f"{_SCRATCH}*"):
        shutil.rmtree(leftover, ignore_errors=True)
    with tempfile.TemporaryDirectory(prefix=_SCRATCH, dir=archive.parent) as scratch:
        draft = Path(scratch) / archive.name
        await _record(Path(scratch) / "data", draft)
        if draft.is_file():
            for older in archive.parent.glob(f"*{SUFFIX}"):
                older.unlink(missing_ok=True)
            draft.replace(archive)


async def _record(data_dir: Path, draft: Path) -> None:
    broker = LocalBroker(data_dir, archive=None, jvm_options=(f"-XX:AOTCacheOutput={draft}",), grace_s=_WRITE_S)
    try:
        await exercise(await broker.start())
        await broker.stop()  # the JVM writes the archive as it ends
    except BaseException:
        await broker.kill()
        raise


async def _train_while_wanted(archive: Path) -> None:
    work = asyncio.ensure_future(train(archive))
    if stat.S_ISFIFO(os.fstat(0).st_mode):
        asyncio.get_running_loop().add_reader(0, work.cancel)
    await work


def main() -> None:
    archive = Path(sys.argv[1])
    os.nice(_NICE)
    archive.parent.mkdir(parents=True, exist_ok=True)
    with (archive.parent / "train.lock").open("w") as lock:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            return  # someone else is making it
        if not archive.exists():
            asyncio.run(_train_while_wanted(archive))


if __name__ == "__main__":
    main()
