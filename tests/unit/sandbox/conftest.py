"""The back ends that this machine offers, one service each for a whole module."""

import os
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest

from environments.context import Limits
from services.sandbox.bubblewrap import Bubblewrap
from services.sandbox.choice import Chosen
from services.sandbox.confine import abi
from services.sandbox.options import Options
from services.sandbox.place import Shape
from services.sandbox.runtime import Runtime, this_installation
from services.sandbox.sandbox import SandboxService
from services.sandbox.shared_machine import MIN_ABI, Landlock, Rlimits

SYSTEM_PYTHON = "/usr/bin/python3"
SHAPE = Shape.of(Limits())
ROOT = os.geteuid() == 0

MAKERS: dict[str, Callable[[], object]] = {
    "bwrap": lambda: Bubblewrap(this_installation(), SHAPE),
    # As an ordinary user would run it, with a Python that ordinary users can read.
    "bwrap-user": lambda: Bubblewrap(Runtime(SYSTEM_PYTHON, ()), SHAPE, as_root=False),
    "landlock": lambda: Landlock(this_installation(), SHAPE),
    "rlimits": lambda: Rlimits(this_installation(), SHAPE),
}


def lacking(name: str) -> str:
    if name.startswith("bwrap") and shutil.which("bwrap") is None:
        return "no bubblewrap here"
    if name == "bwrap-user" and not (ROOT and Path(SYSTEM_PYTHON).exists()):
        return "bwrap runs as an ordinary user already, or there is no system Python"
    if name == "landlock" and abi() < MIN_ABI:
        return "no Landlock here"
    return ""


def services(*names: str):
    return pytest.mark.parametrize("make", names, indirect=True)


@pytest.fixture
def make(request):
    reason = lacking(request.param)
    if reason:
        pytest.skip(reason)
    return request.param


@pytest.fixture
async def sandbox(make):
    chosen = Chosen(Options(slots=4), {"auto": lambda _: MAKERS[make]()})
    chosen.options = Options(backend="auto", slots=4)
    service = SandboxService(chosen.options, chosen)
    chosen._backend = MAKERS[make]()
    yield service
    await service.close()
