"""The checker: starts the process that runs the program, judges what it answers, and reports to whoever started it.

Invariant: the process of the program can neither read the expected outputs nor write a report. It is forked before they and
the report's secret are read, its standard streams are replaced, and the checker's memory and descriptors are closed to
other processes. All of that is read before the program runs. What it can do is end the checker; then there is no report.
"""

from __future__ import annotations

import json
import os
import signal
import sys
import time
from collections.abc import Mapping, Sequence
from contextlib import suppress
from typing import Any

from environments.code_gen.checking.comparing import cut, same_plain_value, same_value, wrong_output
from environments.code_gen.checking.frames import Gone, Line
from environments.code_gen.checking.guarding import DIGITS, drop_privileges, set_private

WRONG, TIMEOUT, ERROR = -2, -3, -4

_STARTED = {"started": True}


class Child:
    """The process of the program. `deadline` is a time of `time.monotonic`."""

    def __init__(self, pid: int, line: Line, deadline: float) -> None:
        self.pid, self._line, self._deadline = pid, line, deadline

    def ask(self, what: str, **fields: Any) -> dict[str, Any]:
        """Its answer to a request; raises `Gone` when there is none in time."""
        self._line.send({"do": what, **fields})
        return self._line.receive(self._deadline, self._alive)

    def come_up(self) -> None:
        """Wait for its word that it is ready, before which it runs nothing of the program; raises `Gone`, and says why."""
        said = self._line.receive(self._deadline, self._alive)
        if said.get("ready") is not True:
            raise Gone(str(said.get("fault")))

    def end(self) -> None:
        for kill in (os.killpg, os.kill):
            with suppress(OSError):  # it has ended, or not yet begun its session
                kill(self.pid, signal.SIGKILL)

    def _alive(self) -> bool:
        return os.waitid(os.P_PID, self.pid, os.WEXITED | os.WNOHANG | os.WNOWAIT) is None


class Wrong(Exception):
    """The answer is not right: the last entry of the result, and the metadata."""

    def __init__(self, code: int | bool, metadata: Mapping[str, Any]) -> None:
        super().__init__(code)
        self.code, self.metadata = code, metadata


def main() -> None:
    """Check the task on stdin (two sections: what the program may know, what only the checker may) and report on stdout."""
    os.environ.update(OMP_NUM_THREADS="1", OPENBLAS_NUM_THREADS="1")
    sys.set_int_max_str_digits(DIGITS)
    set_private(private=True)
    task = _section(0)
    child = _start(task)
    secret = _section(0)
    found = _found(child, task, secret)
    child.end()
    _report(secret["nonce"], found)


def _found(child: Child, task: Mapping[str, Any], secret: Mapping[str, Any]) -> dict[str, Any]:
    """The report. Up to the child's word that it is ready, whatever happens says nothing about the program."""
    try:
        child.come_up()
    except Gone as e:
        return {"fault": f"the process for the program did not come up: {e}"}
    _report(secret["nonce"], _STARTED)
    try:
        return _checked(child, task, secret)
    except Gone:
        return {"gone": True}
    except Exception as e:  # noqa: BLE001 - a defect of the checker is no verdict on the program
        return {"fault": repr(e)}


def _checked(child: Child, task: Mapping[str, Any], secret: Mapping[str, Any]) -> dict[str, Any]:
    passed, spent = 0, 0.0
    try:
        ready = child.ask("prepare")
        if "failed" in ready:
            raise Wrong(ERROR, _not_tested(ready["failed"]))
        tests = _expected(secret["outputs"], task["fn_name"])
        for i, wanted in enumerate(tests[: len(task["inputs"])]):
            begun = time.monotonic()
            answer = child.ask("test", test=i)
            spent += time.monotonic() - begun
            _judge(child, answer, wanted, task, i, plain=secret["plain"])
            passed += 1
    except Wrong as e:
        return {"passed": passed, "last": e.code, "metadata": e.metadata}
    return {"passed": passed, "last": None, "metadata": {"execution time": spent}}


def _expected(outputs: Sequence[str], function: str | None) -> Sequence[Any]:
    """The outputs, as values where a function is called."""
    if function is None:
        return outputs
    try:
        return [json.loads(text) for text in outputs]
    except (ValueError, RecursionError) as e:
        raise Wrong(ERROR, _not_tested(str(e))) from e


def _judge(child: Child, answer: Mapping[str, Any], wanted: Any, task: Mapping[str, Any], i: int, *, plain: bool) -> None:
    """Raises `Wrong` unless the answer to test `i` is right."""
    _raised(answer, wanted)
    if task["fn_name"] is None:
        output = answer.get("output")
        if not isinstance(output, str):
            raise Gone("a test without output")
        why = wrong_output(output, wanted)
        if why is not None:
            raise Wrong(WRONG, _mismatch(output, task["inputs"][i], wanted, why))
    elif not _right_value(child, answer, wanted, plain=plain):
        shown = child.ask("show")
        raise Wrong(False, _mismatch(str(shown.get("output")), str(shown.get("inputs")), str(wanted), "Wrong Answer"))


def _right_value(child: Child, answer: Mapping[str, Any], wanted: Any, *, plain: bool) -> bool:
    if plain or answer.get("kind") != "foreign":
        return same_plain_value(answer, wanted) if plain else same_value(answer, wanted)
    verdict = child.ask("equal", expected=wanted)
    _raised(verdict, wanted)
    return same_value(answer, wanted, claimed=verdict.get("equal") is True)


def _raised(answer: Mapping[str, Any], wanted: Any) -> None:
    """Raises `Wrong` for a test that ended by its alarm or by an exception."""
    ends = {"inputs": cut(str(answer.get("inputs"))), "expected": cut(str(wanted))}
    if "timeout" in answer:
        found = {"error": cut(str(answer["timeout"])), "error_code": TIMEOUT, "error_message": "Time Limit Exceeded", **ends}
        raise Wrong(TIMEOUT, found)
    if "error" in answer:
        texts = {name: cut(str(answer.get(name)), 2000) for name in ("error", "traceback")}
        raise Wrong(ERROR, {**texts, "error_code": ERROR, "error_message": "Runtime Error", **ends})


def _mismatch(output: str, inputs: str, wanted: str, why: str) -> dict[str, Any]:
    ends = {"output": cut(output), "inputs": cut(inputs), "expected": cut(wanted)}
    return {**ends, "error_code": WRONG, "error_message": why}


def _not_tested(why: Any) -> dict[str, Any]:
    return {"error_code": ERROR, "error_message": f"Error during testing: {cut(str(why), 2000)}"}


def _start(task: Mapping[str, Any]) -> Child:
    """The child, waiting for its first request. Its deadline counts from here."""
    requests, answers = os.pipe(), os.pipe()
    deadline = time.monotonic() + task["deadline"]
    pid = os.fork()
    if pid == 0:
        os.close(requests[1])
        os.close(answers[0])
        _become_program(Line(requests[0], answers[1]), task)
    os.close(requests[0])
    os.close(answers[1])
    return Child(pid, Line(answers[0], requests[1]), deadline)


def _become_program(line: Line, task: Mapping[str, Any]) -> None:
    """What the fork does until it is killed; it never returns."""
    leave = os._exit  # no clean-up of the checker's in its fork; kept, as the guard clears `os`
    try:
        os.setsid()
        null = os.open(os.devnull, os.O_RDWR)
        for stream in (0, 1, 2):
            os.dup2(null, stream)
        try:
            from environments.code_gen.checking.running import get_ready, serve

            drop_privileges()
            set_private(private=False)
            get_ready()
        except Exception as e:
            line.send({"fault": repr(e)})
            raise
        line.send({"ready": True})
        serve(line, task)
    finally:
        leave(1)


def _section(source: int) -> dict[str, Any]:
    """Length (8 bytes) and JSON, read without buffering: what follows must stay in the pipe until the fork is made."""
    found: dict[str, Any] = json.loads(_bytes(source, int.from_bytes(_bytes(source, 8), "big")))
    return found


def _bytes(source: int, size: int) -> bytes:
    data = bytearray()
    while len(data) < size:
        part = os.read(source, min(size - len(data), 1 << 20))
        if not part:
            raise EOFError(f"stdin ended {size - len(data)} bytes early")
        data += part
    return bytes(data)


def _report(nonce: str, found: Mapping[str, Any]) -> None:
    rest = memoryview(f"\n{nonce}{json.dumps(found)}\n".encode("ascii"))
    while rest:
        rest = rest[os.write(1, rest) :]
