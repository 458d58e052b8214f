"""Having an answer checked: the checking program is sent into the sandbox, its report comes back.

Invariant: only a line that begins with this call's secret is a report. Without one, the program ended its checker and gave
no answer (-1), provided that the checker had said it was started; a checker that never started is an infrastructure failure.
"""

from __future__ import annotations

import json
import py_compile
import secrets
import sys
import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

from environments.context import PYTHON, Limits, Sandbox, SandboxResult
from schemas.errors import InfrastructureError

NO_ANSWER = -1

_GRACE_S = 5
"""What the reference gives a program beyond (limit + 1 s) for each of its inputs."""

_MARGIN_S = 30.0
"""What the sandbox gives the checker beyond that: to start, to compare, to report, on a busy machine."""

_PACKAGE = "environments/code_gen/checking"
_AS_IT_IS = py_compile.PycInvalidationMode.UNCHECKED_HASH
_MAIN = b"from environments.code_gen.checking.supervising import main\n\nmain()\n"

_TOLD = 2000
"""Characters of the checker's complaint in an error message."""


@dataclass(frozen=True, slots=True)
class HiddenTests:
    """A task's tests. `function` None: programs that read stdin; else each input holds its arguments, a JSON value per line."""

    inputs: Sequence[str]
    outputs: Sequence[str]
    function: str | None = None


@dataclass(frozen=True, slots=True)
class Checking:
    """How answers are checked. `timeout_s` is for each test, `memory` in bytes; `plain`: see `CodeGenConfig`."""

    timeout_s: int
    memory: int
    plain: bool = False


@dataclass(frozen=True, slots=True)
class Report:
    """One entry for each test that was tried (code_gen.md, "Execution"), and the metadata of the last one."""

    result: tuple[bool | int, ...]
    metadata: Mapping[str, Any] | None
    wall_s: float

    @property
    def passed(self) -> bool:
        """Whether every test that was tried passed; there may be none."""
        return all(entry is True for entry in self.result)


async def check(sandbox: Sandbox, code: str, tests: HiddenTests, checking: Checking) -> Report:
    """Run `code` against `tests`; raises `InfrastructureError` when that could not be done."""
    nonce = secrets.token_hex(16)
    deadline = (checking.timeout_s + 1) * len(tests.inputs) + _GRACE_S
    task = {
        "code": code,
        "inputs": list(tests.inputs),
        "fn_name": tests.function,
        "timeout": checking.timeout_s,
        "deadline": deadline,
    }
    secret = {"nonce": nonce, "outputs": list(tests.outputs), "plain": checking.plain}
    limits = Limits(wall_s=deadline + _MARGIN_S, memory=checking.memory)
    stdin = _section(task) + _section(secret)
    ended = await sandbox.run([PYTHON, "main.py"], files=_program(), stdin=stdin, limits=limits)
    return _report(ended, nonce.encode(), len(tests.inputs))


def _report(ended: SandboxResult, nonce: bytes, inputs: int) -> Report:
    said = [json.loads(line.removeprefix(nonce)) for line in ended.stdout.splitlines() if line.startswith(nonce)]
    if not said:
        told = ended.stderr.decode("utf-8", "replace")[-_TOLD:]
        raise InfrastructureError(
            f"the checker did not start in the sandbox (exit status {ended.returncode}, limit {ended.limit or 'none'})",
            detail=told,
        )
    found = said[-1]
    if "fault" in found:
        raise InfrastructureError(f"the checker failed: {found['fault'][:_TOLD]}")
    if "passed" not in found:
        return Report((NO_ANSWER,) * inputs, None, ended.wall_s)
    last = () if found["last"] is None else (found["last"],)
    return Report((True,) * found["passed"] + last, found["metadata"], ended.wall_s)


def _section(content: Mapping[str, Any]) -> bytes:
    body = json.dumps(content).encode("ascii")
    return len(body).to_bytes(8, "big") + body


@cache
def _program() -> Mapping[str, bytes]:
    """The files of the checking program. Its parent packages are empty there: in the sandbox there is no rollstream."""
    parents = dict.fromkeys(("environments/__init__.py", "environments/code_gen/__init__.py"), b"")
    found = {"main.py": _MAIN, **parents}
    for path in Path(__file__).with_name("checking").glob("*.py"):
        name = f"{_PACKAGE}/{path.name}"
        # Not importlib's `cache_from_source`: it names a place in our PYTHONPYCACHEPREFIX, which the sandbox has not.
        compiled = f"{_PACKAGE}/__pycache__/{path.stem}.{sys.implementation.cache_tag}.pyc"
        found |= {name: path.read_bytes(), compiled: _compiled(path, name)}
    return found


def _compiled(path: Path, name: str) -> bytes:
    """The module compiled: it spares each check 10 ms. A Python of another version reads the source instead."""
    with tempfile.TemporaryDirectory() as folder:
        made = py_compile.compile(str(path), str(Path(folder, "made.pyc")), name, doraise=True, invalidation_mode=_AS_IT_IS)
        return Path(str(made)).read_bytes()
