"""Which program runs, and what its end means. The sandbox is scripted: what it isolates is tested where it is built."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence

import pytest

from environments.context import Context, Limits, SandboxResult
from environments.hostile import MEGABYTES
from environments.registry import Registry
from environments.testing import EnvironmentHarness, response

ROW = {"responses_create_params": {"input": "?"}, "cases": [{"stdin": "1", "stdout": "1"}, {"stdin": "2", "stdout": "2"}]}
BINDING = Registry.load().binding("my_environment", None)
ECHO = "Here:\n```python\necho\n```"


class ScriptedSandbox:
    """Ends every program as it is told; a program `echo` prints its input."""

    def __init__(self, end: SandboxResult | None = None) -> None:
        self.end = end
        self.programs: list[bytes] = []

    async def run(
        self,
        argv: Sequence[str],
        *,
        files: Mapping[str, bytes] | None = None,
        stdin: bytes = b"",
        limits: Limits = Limits(),
        collect: Sequence[str] = (),
    ) -> SandboxResult:
        self.programs.append((files or {})["main.py"])
        return self.end or SandboxResult(0, stdin + b" \n", b"")


def harness(sandbox: ScriptedSandbox) -> EnvironmentHarness:
    context = Context(sandbox_client=sandbox)
    made = EnvironmentHarness(BINDING, context=context)
    made.seed(ROW)
    return made


def test_a_program_that_passes_all_cases() -> None:
    sandbox = ScriptedSandbox()
    verdict = harness(sandbox).verify(response("```\nfirst\n```" + ECHO))
    assert (verdict.reward, verdict.fields) == (1.0, {"passed": 2, "error": None})
    assert sandbox.programs == [b"echo\n", b"echo\n"]


@pytest.mark.parametrize(
    ("end", "error"),
    [
        (SandboxResult(0, b"1\n", b""), "wrong output"),
        (SandboxResult(1, b"", b"Traceback"), "exit status 1"),
        (SandboxResult(-9, b"", b"", limit="wall"), "limit: wall"),
    ],
)
def test_a_program_that_fails(end: SandboxResult, error: str) -> None:
    verdict = harness(ScriptedSandbox(end)).verify(response(ECHO))
    assert (verdict.reward, verdict.fields["error"]) == (0.0, error)


@pytest.mark.parametrize("text", ["", "no program", "``` never closed"])
def test_a_reply_without_a_program_runs_nothing(text: str) -> None:
    sandbox = ScriptedSandbox()
    assert harness(sandbox).verify(response(text)).fields["error"] == "no code block"
    assert sandbox.programs == []


@pytest.mark.parametrize("text", MEGABYTES.values(), ids=MEGABYTES.keys())
def test_a_megabyte_takes_no_longer_than_a_second(text: str) -> None:
    started = time.monotonic()
    harness(ScriptedSandbox()).verify(response(text + ECHO))
    assert time.monotonic() - started < 1.0
