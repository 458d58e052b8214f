"""Functions for the process pool: they have to live in a module that its processes can import."""

from __future__ import annotations

import os
import re
import signal
import sys
import time
from pathlib import Path
from typing import Any

from schemas.errors import JudgeError


class Stubborn(Exception):
    """Cannot be restored from its arguments."""

    def __init__(self, one: str, *, two: str) -> None:
        super().__init__(f"{one} {two}")


def echo(value: Any) -> Any:
    return value


def pid() -> int:
    return os.getpid()


def raise_judge() -> None:
    raise JudgeError("no answer", detail="503", retryable=False)


def raise_value(text: str) -> None:
    raise ValueError(text)


def raise_stubborn() -> None:
    raise Stubborn("a", two="b")


def raise_stop() -> None:
    raise StopIteration(1)


def leave() -> None:
    sys.exit(3)


def unpicklable() -> Any:
    return lambda: None


def die(how: str) -> None:
    if how == "exit":
        os._exit(7)
    os.kill(os.getpid(), getattr(signal, how))


def sleep(seconds: float) -> float:
    time.sleep(seconds)
    return seconds


def hold_interpreter() -> None:
    """A search that is never over and lets no other thread run."""
    re.match(r"(?:a+)+$", "a" * 60 + "b")


def write(path: Path) -> None:
    path.write_text("begun")


def write_and_hold(path: Path) -> None:
    path.write_text(str(os.getpid()))
    hold_interpreter()


def shout(text: str) -> None:
    print(text, flush=True)  # noqa: T201 - what is tested
