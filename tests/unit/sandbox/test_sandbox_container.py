"""The container back end against a small engine of our own: requests, the attached stream, removal."""

import pytest

from environments.context import PYTHON, Limits
from schemas.errors import InfrastructureError
from services.sandbox.choice import Chosen
from services.sandbox.container import Container
from services.sandbox.options import Options
from services.sandbox.sandbox import SandboxService
from tests.unit.sandbox.engine import Engine


@pytest.fixture
async def engine(tmp_path):
    async with Engine(tmp_path) as engine:
        yield engine


@pytest.fixture
async def service(engine):
    service = SandboxService(Options("container", 2, image="python:3.12-slim", engine=engine.path))
    yield service
    await service.close()


async def test_a_program_runs_in_a_container_of_its_own_that_is_removed(engine, service):
    code = b"import sys\nprint(sys.stdin.read().upper())\nopen('out', 'w').write('7')\nprint('oh', file=sys.stderr)\n"
    result = await service.run([PYTHON, "main.py"], files={"main.py": code}, stdin=b"abc", collect=["out", "none"])
    assert (result.returncode, result.stdout, result.stderr) == (0, b"ABC\n", b"oh\n")
    assert dict(result.files) == {"out": b"7"}
    assert result.unsafe is False
    await service.settled()
    assert engine.removed == list(engine.containers)  # the trial's and the program's


async def test_what_the_engine_is_asked_for(engine, service):
    limits = Limits(memory=1 << 28, processes=7, scratch=1 << 20)
    await service.run([PYTHON, "-c", "pass"], limits=limits)
    asked = list(engine.containers.values())[-1]
    host = asked["HostConfig"]
    assert asked["Image"] == "python:3.12-slim"
    assert asked["User"] == "65534:65534"
    assert host["NetworkMode"] == "none"
    assert host["Memory"] == host["MemorySwap"] >= 1 << 28
    assert host["PidsLimit"] == 8
    assert (host["ReadonlyRootfs"], host["CapDrop"], host["SecurityOpt"]) == (True, ["ALL"], ["no-new-privileges"])
    assert host["Tmpfs"] == {"/tmp": "size=1048576,mode=1777,exec"}
    await service.run([PYTHON, "-c", "pass"], limits=Limits(network=True))
    assert list(engine.containers.values())[-1]["HostConfig"]["NetworkMode"] == "bridge"


async def test_output_larger_than_any_piece_arrives_whole(service):
    result = await service.run([PYTHON, "-c", "print('x' * 900_000)"])
    assert result.stdout == b"x" * 900_000 + b"\n"


async def test_time_runs_out(service):
    result = await service.run([PYTHON, "-c", "import time; print(1, flush=True); time.sleep(60)"], limits=Limits(wall_s=0.5))
    assert (result.limit, result.returncode, result.stdout) == ("wall", -9, b"1\n")


async def test_the_kernel_took_it_for_its_memory(engine, service):
    engine.out_of_memory = True
    result = await service.run([PYTHON, "-c", "import os; os.kill(os.getpid(), 9)"])
    assert (result.limit, result.returncode) == ("memory", -9)


async def test_an_engine_that_refuses_is_told_in_its_words(engine, service):
    engine.refuses = "create"
    with pytest.raises(InfrastructureError, match="no such image: nowhere"):
        await service.run([PYTHON, "-c", "pass"])


async def test_what_is_missing_is_said(tmp_path, monkeypatch):
    assert "sandbox.image" in await Container("").probe()
    monkeypatch.setenv("DOCKER_HOST", f"unix://{tmp_path}/nobody.sock")
    service = SandboxService(Options("container", image="python"), Chosen(Options("container", image="python")))
    with pytest.raises(InfrastructureError, match="did not answer"):
        await service.run([PYTHON, "-c", "pass"])
    await service.close()
