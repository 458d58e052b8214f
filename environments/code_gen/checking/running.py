"""The process that runs the program: compiles it once, then runs test after test as the checker asks.

It is given the program and the inputs, never the expected outputs (but for `equal`, which is asked after the value was
handed over). Everything it says is what the program could have said: the checker decides. It is a fork of the checker on
its main thread, so alarms fire.
"""

from __future__ import annotations

import importlib
import json
import signal
import sys
from collections.abc import Callable, Mapping
from types import FrameType, ModuleType
from typing import Any

from environments.code_gen.checking.comparing import cut
from environments.code_gen.checking.frames import Line
from environments.code_gen.checking.guarding import DIGITS, disarm, load, raise_limits
from environments.code_gen.checking.stdin import Stdin, Stdout
from environments.code_gen.checking.wrapping import FUNCTION, IMPORTED, called, run_on_stdin

_SCALARS = frozenset({str, int, float, bool, type(None)})

_ERROR_SHOWN = 2000
"""Characters of an error's text that are reported."""


class OutOfTime(Exception):
    """The alarm of a test. A program that catches everything catches this too, as in the reference."""


class Program:
    """The compiled program and the test it is at. `answer` serves one request of the checker."""

    def __init__(self, source: str, inputs: list[str], function: str | None, timeout_s: int) -> None:
        self._source, self._inputs, self._function = source, inputs, function
        self._timeout_s = timeout_s
        self._arguments: list[list[Any]] = []
        self._method: Callable[..., Any] | None = None
        self._at: int = 0
        self._value: Any = None

    def answer(self, request: Mapping[str, Any]) -> dict[str, Any]:
        what = request["do"]
        if what == "prepare":
            return self._prepare()
        if what == "test":
            self._at = int(request["test"])
            return self._test()
        if what == "equal":
            return self._equal(request["expected"])
        return {"output": _shown(self._value), "inputs": self._given()}

    def _prepare(self) -> dict[str, Any]:
        try:
            self._method = self._compile()
            if self._function is not None:
                self._arguments = [[json.loads(line) for line in text.split("\n")] for text in self._inputs]
        except Exception as e:  # noqa: BLE001 - whatever compiling or importing raises is an answer
            return {"failed": _text(e)}
        return {}

    def _compile(self) -> Callable[..., Any]:
        stdin = self._function is None
        source = run_on_stdin(self._source) if stdin else called(self._source)
        module = ModuleType("solution", "")
        signal.alarm(self._timeout_s)
        try:
            exec(source, module.__dict__)  # noqa: S102 - what this process is for
            home = module.Solution() if "class Solution" in source else module
        finally:
            signal.alarm(0)
        method: Callable[..., Any] = getattr(home, FUNCTION if stdin else str(self._function))
        return method

    def _test(self) -> dict[str, Any]:
        try:
            return self._run()
        except OutOfTime as e:
            return {"timeout": repr(e), "inputs": self._given()}
        except Exception as e:  # noqa: BLE001 - whatever the program raises is an answer
            signal.alarm(0)
            return {**_error(e), "inputs": self._given()}

    def _run(self) -> dict[str, Any]:
        signal.alarm(self._timeout_s)
        try:
            if self._function is None:
                return {"output": _printed(self._method, self._inputs[self._at])}
            value = self._method(*self._arguments[self._at])  # type: ignore[misc]  # prepared
        finally:
            signal.alarm(0)
        self._value = list(value) if isinstance(value, tuple) else value
        return describe(self._value)

    def _equal(self, expected: Any) -> dict[str, Any]:
        try:
            return {"equal": bool(self._value == expected)}
        except Exception as e:  # noqa: BLE001 - the value's own comparison
            return {**_error(e), "inputs": self._given()}

    def _given(self) -> str:
        return self._inputs[self._at] if self._function is None else _shown(self._arguments[self._at])


def describe(value: Any) -> dict[str, Any]:
    """A value as the checker judges it: its JSON text, its float, and what it is made of.

    `kind`: `plain` (reading `text` gives an equal value), `mixed` (tuples inside or keys that are no strings, so never equal
    to what JSON gives), `foreign` (anything else; `loose` is its text with numbers of other types as plain ones).
    """
    text = _attempt(lambda: json.dumps(value))
    number = _attempt(lambda: float(value))
    kind = "foreign" if text is None else _kind(value)
    found = {"kind": kind, "text": text, "number": number if type(number) is float else None}
    if kind == "foreign" and text is None:
        found["loose"] = _attempt(lambda: json.dumps(value, default=_plain_number))
    return found


def _kind(value: Any) -> str:
    """What a value that JSON can write is made of; such a value has no cycles."""
    kind, todo = "plain", [value]
    while todo:
        item = todo.pop()
        if type(item) in (list, tuple):
            kind = "mixed" if type(item) is tuple else kind
            if not _SCALARS.issuperset(map(type, item)):
                todo.extend(item)
        elif type(item) is dict:
            keys = set(map(type, item))
            if not keys <= _SCALARS:
                return "foreign"
            kind = "mixed" if keys - {str} else kind
            todo.extend(item.values())
        elif type(item) not in _SCALARS:
            return "foreign"
    return kind


def _plain_number(value: Any) -> Any:
    """Numbers and arrays of numpy, decimals and fractions as plain numbers and lists."""
    if hasattr(value, "tolist"):
        return value.tolist()
    return float(value)


def _printed(method: Any, text: str) -> str:
    """What the program writes to `sys.stdout` when it reads `text`; raises what it raises, but for `SystemExit`."""
    streams, printed = (sys.stdin, sys.stdout), Stdout()
    sys.stdin, sys.stdout = Stdin(text), printed
    try:
        method()
    except SystemExit:
        pass
    finally:
        sys.stdin, sys.stdout = streams
    return printed.getvalue()


def get_ready() -> None:
    """Set up this process; what fails here fails before anything of the program was run.

    What every program imports is imported here, so that a Python that cannot be read is found out now.
    """
    signal.signal(signal.SIGALRM, _on_alarm)
    raise_limits()
    sys.set_int_max_str_digits(DIGITS)
    for name in IMPORTED:
        importlib.import_module(name)


def serve(line: Line, task: Mapping[str, Any]) -> None:
    """Answer requests until the checker has heard enough; it ends this process."""
    program = Program(task["code"], task["inputs"], task["fn_name"], task["timeout"])
    load(task["code"])
    disarm(task["code"])
    while True:
        line.send(program.answer(line.receive()))


def _on_alarm(_signal: int, _frame: FrameType | None) -> None:
    raise OutOfTime("the time limit of a test")


def _error(error: Exception) -> dict[str, Any]:
    import traceback

    trace = _attempt(lambda: "".join(traceback.format_exception(error, limit=-8)))
    return {"error": cut(str(_attempt(lambda: repr(error))), _ERROR_SHOWN), "traceback": cut(str(trace), _ERROR_SHOWN)}


def _text(error: Exception) -> str:
    return cut(str(_attempt(lambda: str(error))), _ERROR_SHOWN)


def _shown(value: Any) -> str:
    return cut(str(_attempt(lambda: str(value))))


def _attempt(make: Callable[[], Any]) -> Any:
    """What `make` gives; None when it raises: values and errors of programs may refuse to be looked at."""
    try:
        return make()
    except Exception:  # noqa: BLE001 - see above
        return None
