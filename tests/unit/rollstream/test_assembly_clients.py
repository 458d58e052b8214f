"""What environment code gets on a worker follows from the settings."""

from __future__ import annotations

import asyncio
import os

import platformdirs
import pytest
from pydantic import ValidationError

from rollstream.runner.assembly import clients_of
from rollstream.settings.model import CodeServer, Environments, Settings, Verifier
from schemas.errors import FailureClass, InfrastructureError
from schemas.identity import RolloutRef

REF = RolloutRef("r", "t", 0, 0)


async def test_a_code_server_that_is_configured_is_started_and_offered():
    clients = clients_of(Settings(code_server=CodeServer(url="http://127.0.0.1:1", concurrency=2)))
    await clients.start()
    try:
        reply = await clients.context(REF, 0).code_server.execute({}, timeout_s=5)
    finally:
        await clients.close()
    assert reply["process_status"] == "error"


async def test_without_one_the_failure_names_the_setting():
    clients = clients_of(Settings())
    await clients.start()
    with pytest.raises(InfrastructureError, match=r"setting `code_server\.url`") as failure:
        clients.context(REF, 0).code_server  # noqa: B018
    assert failure.value.failure_class == FailureClass.INFRASTRUCTURE
    await clients.close()


def test_an_address_without_a_scheme_is_refused_where_it_is_set():
    with pytest.raises(ValidationError, match="url"):
        CodeServer(url="localhost:6000")


async def test_code_that_computes_finds_a_pool_of_as_many_processes_as_are_set():
    clients = clients_of(Settings(verifier=Verifier(processes=1)))
    await clients.start()
    try:
        context = clients.context(REF, 0)
        found = await asyncio.gather(*(context.compute(os.getpid) for _ in range(8)))
    finally:
        await clients.close()
    assert len(set(found)) == 1
    assert os.getpid() not in found


async def test_pages_of_the_web_are_offered():
    clients = clients_of(Settings())
    await clients.start()
    try:
        with pytest.raises(InfrastructureError, match="could not be read"):
            await clients.context(REF, 0).pages.get("http://127.0.0.1:1/", timeout_s=0.5)
    finally:
        await clients.close()


async def test_environments_are_told_where_their_data_lie(tmp_path):
    for settings, folder in [
        (Settings(environments=Environments(data_dir=tmp_path)), tmp_path),
        (Settings(), platformdirs.user_data_path("rollstream") / "environments"),
    ]:
        clients = clients_of(settings)
        await clients.start()
        try:
            assert clients.context(REF, 0).data_dir == folder
        finally:
            await clients.close()
