"""What environment code gets of a worker's clients: stand-ins that carry calls to the worker's loop and back."""

import asyncio
import contextlib

import pytest

from environments.context import SandboxResult
from environments.response import Response
from environments.testing import response
from schemas.errors import InfrastructureError, JudgeError
from schemas.identity import RolloutRef
from services.runtime.chance import VERIFICATION
from services.runtime.clients import Clients
from services.runtime.offload import Offload

REF = RolloutRef("run", "7", 7, 0, "7-0")


class OfTheLoop:
    """A client of every kind that works on the loop on which it was started, and notes what became of it."""

    def __init__(self):
        self.loop = None
        self.told = []

    async def start(self):
        self.loop = asyncio.get_running_loop()

    async def close(self):
        self.told.append("closed")

    def check(self):
        assert asyncio.get_running_loop() is self.loop

    async def create(self, params):
        self.check()
        if params.get("fail"):
            raise JudgeError("no judge")
        if params.get("hang"):
            try:
                await asyncio.sleep(60)
            except asyncio.CancelledError:
                self.told.append("cancelled")
                raise
        return Response(response("yes"))

    async def run(self, argv, *, files=None, stdin=b"", limits=None, collect=()):
        self.check()
        return SandboxResult(0, stdin, b"")

    async def get(self, rollout, driver, *, journal=(), limits=None):
        self.check()
        return self

    async def execute(self, request, *, timeout_s):
        self.check()
        return {"got": request}


@contextlib.asynccontextmanager
async def offered():
    service = OfTheLoop()
    clients = Clients({"judge": service}, service, service, code_server=service, owned=[service])
    offload = Offload("test")
    await clients.start()
    await offload.start()
    try:
        yield service, clients, offload
    finally:
        await offload.close()
        await clients.close()


async def test_calls_of_side_threads_run_on_the_workers_loop():
    async with offered() as (service, clients, offload):
        context = clients.context(REF, VERIFICATION)

        async def work():
            assert asyncio.get_running_loop() is not service.loop
            reply = await context.model("judge").create({})
            ran = await context.sandbox.run(["python"], stdin=b"in")
            session = await context.sessions.get("7-0", "driver")
            return (
                reply.flat_text(),
                ran.stdout,
                await session.execute("1", timeout_s=1),
                await context.code_server.execute({}, timeout_s=1),
            )

        assert await offload.submit(work, 5, waits=True) == ("yes", b"in", {"got": "1"}, {"got": {}})
    assert service.told == ["closed"]


async def test_an_error_comes_back_and_a_cancelled_call_is_cancelled_there():
    async with offered() as (service, clients, offload):
        judge = clients.context(REF, VERIFICATION).model("judge")
        with pytest.raises(JudgeError, match="no judge"):
            await offload.submit(lambda: judge.create({"fail": True}), 5)
        hanging = offload.submit(lambda: judge.create({"hang": True}), 5)
        await asyncio.sleep(0.05)
        hanging.cancel()
        async with asyncio.timeout(5):
            while "cancelled" not in service.told:  # noqa: ASYNC110 - told by the other thread
                await asyncio.sleep(0.01)


async def test_what_a_worker_does_not_have_is_said():
    clients = Clients()
    await clients.start()
    context = clients.context(REF, 0)
    with pytest.raises(InfrastructureError, match="no model named 'judge' is configured"):
        context.model("judge")
    with pytest.raises(InfrastructureError, match="this worker has no sandbox"):
        _ = context.sandbox
    assert await context.compute(divmod, 7, 2) == (3, 1)
