"""A verifier worker that knows the environment `ranked`, as a process to kill: `python -m support.group_member BOOTSTRAP PREFIX N`.

It prints `ready` when its partitions are open, and `held K` whenever it holds another number of records back.
"""

from __future__ import annotations

import asyncio
import sys

from support.pipeline import registry

from schemas.topics import Topics
from services.runtime.claims import ClaimStore
from services.runtime.clients import Clients
from services.runtime.connection import Connection
from services.runtime.worker import Pipeline
from services.verifier_worker import app


async def _main(bootstrap: str, prefix: str, partitions: int) -> None:
    topics = Topics(prefix, partitions)
    pipeline = Pipeline(Connection(bootstrap), topics, {n: p for n, p, _ in topics.declare()})
    claims = ClaimStore("memory://group-member")
    worker = app.build(pipeline, app.VerifierSettings(64, 20.0), registry(), claims, Clients())
    await worker.start()
    said = -1
    while True:
        if said < 0 and worker.ready:
            print("ready", flush=True)  # noqa: T201 - what the test waits for
            said = 0
        if said >= 0 and worker.stages[0].held != said:
            said = worker.stages[0].held
            print(f"held {said}", flush=True)  # noqa: T201 - what the test waits for
        await asyncio.sleep(0.01)


if __name__ == "__main__":
    asyncio.run(_main(sys.argv[1], sys.argv[2], int(sys.argv[3])))
