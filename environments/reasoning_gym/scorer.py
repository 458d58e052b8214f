"""Asking the library for the score of an answer; also the program that does so in the sandbox.

Standard library and reasoning-gym only: this file is sent into the sandbox as it is. Invariants: an answer never runs as a
program. Where the library evaluates an answer as Python, literals are read instead; where it has sympy parse one, which
evaluates it too, only arithmetic gets there. And a scorer that raises gives 0 and says so.
"""

from __future__ import annotations

import ast
import builtins
import importlib
import importlib.util
import json
import keyword
import math
import re
import resource
import sys
import types
import warnings
from collections.abc import Callable, Mapping
from functools import cache
from pathlib import Path
from typing import Any

LITERALS = frozenset({"binary_matrix", "n_queens", "number_sorting", "spiral_matrix", "string_insertion"})
"""Tasks whose scorer calls `eval` with the answer (or with the row's), to see whether it is a list. A literal is all that can
earn anything there but a computed list, which earned a tenth."""

TUPLES = frozenset({"arc_agi", "rearc"})
"""Tasks whose scorer compares tuples with a grid of the row, which JSON has made a list."""

MAX_SHOWN = 200
"""Characters of an error in a result."""

_ARITHMETIC = re.compile(r"[A-Za-z0-9_\s+\-*/^().,=!<>|%\[\]]*", re.ASCII)
_NUMBER = re.compile(r"(?<![\w.])\d++(?:\.\d*+)?(?:[eE][+-]?\d++)?")
_ATTRIBUTE = re.compile(r"\.\s*+[A-Za-z_]")
_WORD = re.compile(r"[A-Za-z_]\w*+")

_FUNCTIONS = frozenset(
    _WORD.findall("""
    Abs Add Ci E Ei I Integer Max Min Mul Piecewise Pow Rational Si Symbol abs acos acosh acot acoth acsc arg asec asin asinh
    atan atan2 atanh beta binomial cbrt ceiling conjugate cos cosh cot coth csc csch erf erfc erfi exp expand factor factorial
    floor gamma im li ln log max min oo pi pow re root round sec sech sign simplify sin sinc sinh sqrt sum tan tanh zoo
    """)
)
"""Names that mean something to sympy or Python and may stand in an answer. Other names are symbols there, or refused here."""

_REGISTERED = re.compile(r'\bregister_dataset\(\s*(?:"(\w+)"|([A-Z_]+))\s*,')
_NAMED = re.compile(r'^([A-Z_]+) = "(\w+)"', re.MULTILINE)

_OPERATORS = frozenset({"True", "False", "None", "and", "or", "not", "in", "is", "if", "else"})


class Refused(ValueError):
    """An answer that would run as a program."""


def score(name: str, answer: str, entry: Mapping[str, Any], *, tuples: bool = False) -> tuple[float, str | None]:
    """The score of an answer to a library entry, and why it is 0 if for another reason than the answer's worth.

    A task that the library has not scores 0. Raises `ImportError` when the library cannot be used: that is no score.
    """
    try:
        dataset = _dataset(name)
    except (LookupError, AssertionError) as e:  # the latter: `composite`, which is no task of its own
        return 0.0, _told(e)
    return _scored(dataset.score_answer, answer, _as_tuples(entry) if tuples and name in TUPLES else entry)


def sandboxed(name: str, answer: str, entry: Mapping[str, Any], cpu_s: int) -> tuple[float, str | None]:
    """`score` in a process of its own, where sympy's parser sees no text but arithmetic.

    The process may use `cpu_s` more seconds of CPU once everything is imported: a slow import costs no answer its score.
    """
    refused: list[str] = []
    _dataset(name)
    _guard(load(name), refused)
    spent = resource.getrusage(resource.RUSAGE_SELF)
    end = math.ceil(spent.ru_utime + spent.ru_stime) + cpu_s
    resource.setrlimit(resource.RLIMIT_CPU, (end, end + 1))
    value, error = score(name, answer, entry)
    return value, refused[0] if refused else error


def modules() -> dict[str, str]:
    """The library's tasks and the module of each, read in its sources: importing it all takes five seconds."""
    found: dict[str, str] = {}
    for path in sorted(_root().rglob("*.py")):
        text = path.read_text("utf-8")
        if "register_dataset(" in text:
            module = ".".join(path.relative_to(_root()).with_suffix("").parts)
            named = dict(_NAMED.findall(text))
            found |= {(literal or named[constant]): module for literal, constant in _REGISTERED.findall(text)}
    return found


def refusal(text: str) -> str | None:
    """Why a text is not arithmetic that may be evaluated, or None."""
    if not _ARITHMETIC.fullmatch(text):
        return "it has characters that arithmetic has not"
    if "__" in text or _ATTRIBUTE.search(_NUMBER.sub("0", text)):
        return "it reaches into objects"
    known = _known_names()
    for word in _WORD.findall(_NUMBER.sub("0", text)):
        if len(word) > 1 and word not in _FUNCTIONS and word not in _OPERATORS and (word in known or keyword.iskeyword(word)):
            return f"it uses {word}"
    return None


def _scored(scorer: Callable[..., Any], answer: str, entry: Mapping[str, Any]) -> tuple[float, str | None]:
    try:
        value = float(scorer(answer=answer, entry=entry))
    except Exception as e:  # noqa: BLE001 - the library's own, of any kind
        return 0.0, _told(e)
    return (value, None) if math.isfinite(value) else (0.0, f"the score is {value}")


@cache
def load(name: str) -> types.ModuleType:
    """The library's module of a task, which is registered from then on; raises `LookupError` for a task that it has not."""
    module = _modules().get(name)
    if module is None:
        raise LookupError(f"the library has no task {name!r}")
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # of old syntax in packages that the library uses
        loaded = _alone(module)
    if name in LITERALS:
        vars(loaded)["eval"] = ast.literal_eval
    return loaded


@cache
def _dataset(name: str) -> Any:
    load(name)
    return importlib.import_module("reasoning_gym.factory").create_dataset(name)


@cache
def _modules() -> dict[str, str]:
    return modules()


@cache
def _root() -> Path:
    spec = importlib.util.find_spec("reasoning_gym")
    if spec is None or spec.origin is None:
        raise ModuleNotFoundError("reasoning_gym")
    return Path(spec.origin).parent


def _alone(module: str) -> types.ModuleType:
    """A module of the library without the `__init__` of the packages above it, which import every task."""
    category = module.rpartition(".")[0]
    for package in ("", f".{category}") if category else ("",):
        if f"reasoning_gym{package}" not in sys.modules:
            bare = types.ModuleType(f"reasoning_gym{package}")
            bare.__path__ = [str(_root().joinpath(*package.split(".")))]
            sys.modules[bare.__name__] = bare
    importlib.import_module("reasoning_gym.coaching")  # first: it and the library's factory import each other
    return importlib.import_module(f"reasoning_gym.{module}")


def _as_tuples(entry: Mapping[str, Any]) -> dict[str, Any]:
    metadata = {k: _tuple(v) if k in ("input", "output") else v for k, v in entry["metadata"].items()}
    return {**entry, "metadata": metadata}


def _tuple(value: Any) -> Any:
    return tuple(_tuple(v) for v in value) if isinstance(value, list) else value


def _told(error: Exception) -> str:
    return f"{type(error).__name__}: {error}"[:MAX_SHOWN]


def _guard(module: types.ModuleType, refused: list[str]) -> None:
    """Have the module's parser look at a text before it evaluates it."""
    if "sympy" not in sys.modules:
        return
    sympy: Any = importlib.import_module("sympy")
    parse = sympy.parse_expr

    def guarded(text: Any, *arguments: Any, **options: Any) -> Any:
        why = refusal(text) if isinstance(text, str) else "it is no text"
        if why is not None:
            refused.append(f"not evaluated: {why}")
            raise Refused(why)
        return parse(text, *arguments, **options)

    sympy.parse_expr = guarded
    if hasattr(module, "parse_expr"):
        vars(module)["parse_expr"] = guarded


@cache
def _known_names() -> frozenset[str]:
    return frozenset(dir(builtins)) | frozenset(dir(importlib.import_module("sympy")))


def _main() -> None:
    """Read the order from stdin, write the mark that is in it and the result to stdout."""
    order = json.load(sys.stdin)
    value, error = sandboxed(order["name"], order["answer"], order["entry"], order["cpu_s"])
    sys.stdout.write("\n" + order["mark"] + json.dumps({"score": value, "error": error}) + "\n")


if __name__ == "__main__":
    _main()
