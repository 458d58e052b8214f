r"""JSON in and out: fast on the ordinary path, never lossy on the odd one.

Owns the two rules of platform.md A6: non-finite numbers are not JSON, and a lone surrogate in a model's or tool's text
is written as a `\uXXXX` escape instead of killing the writer. Integers keep all their digits. Invariant: text that is
refused is a `ValueError`, whatever is wrong with it.
"""

from __future__ import annotations

import codecs
import json
import math
from collections.abc import Iterable
from enum import Enum
from typing import Any, NoReturn

import orjson

Fragment = orjson.Fragment

MAX_DEPTH = 200
"""Deepest nesting a row may have. orjson writes 254 levels, Python's recursion limit allows 1,000 frames; what is deeper
is not data but an attempt on the parser."""

_ESCAPE = "rollstream.escape_surrogates"
_DIGITS = bytes(b"0"[0] if chr(c).isdecimal() else 0 for c in range(256))  # every digit to "0", everything else to NUL
_LONG = b"0" * 19  # shortest integer that may exceed 64 bits; finding it costs 1 µs a KB, as a regex 10


def loads(data: bytes | str) -> Any:
    """Parse strict JSON.

    Raises `ValueError` for anything that is not JSON, including NaN, infinities and lone surrogates.
    """
    value = orjson.loads(data)
    return _loads_exact(data) if _has_long_number(data) else value  # orjson makes floats of integers beyond 64 bits


def loads_lenient(data: bytes | str) -> Any:
    """Parse what a model server sent: strict JSON, or JSON whose strings hold lone surrogate escapes.

    Raises `ValueError` when it is not JSON even so.
    """
    try:
        return loads(data)
    except ValueError:
        return _loads_exact(data)


def dumps(value: Any) -> bytes:
    """Compact UTF-8 JSON, non-ASCII unescaped; lone surrogates escaped; non-finite floats become null.

    Raises `TypeError` for what JSON has no form for, `ValueError` when it is nested too deep or refers to itself.
    """
    try:
        return orjson.dumps(value)
    except (TypeError, ValueError):
        return _dumps_odd(value)


def non_finite_paths(value: Any, path: str = "") -> list[str]:
    """Dotted paths of every NaN or infinity inside `value`, in order of appearance."""
    found: list[str] = []
    rest: list[tuple[Any, str]] = [(value, path)]
    while rest:
        item, path = rest.pop()
        if isinstance(item, float):
            if not math.isfinite(item):
                found.append(path)
            continue
        if isinstance(item, dict):
            children: Iterable[tuple[Any, Any]] = item.items()
        elif isinstance(item, list | tuple):
            children = enumerate(item)
        else:
            continue
        rest += reversed([(v, f"{path}.{k}" if path else str(k)) for k, v in children])
    return found


def too_deep(value: Any) -> bool:
    """Whether `value` is nested deeper than `MAX_DEPTH`."""
    try:
        orjson.dumps(value)  # at C speed; it refuses at 254 levels, and between the two nothing breaks
    except TypeError:
        return _depth_exceeds(value, MAX_DEPTH)
    return False


def without_surrogates(text: str) -> str:
    r"""`text` with each lone surrogate as its `\uXXXX` escape, so that it can be written as UTF-8."""
    return text.encode("utf-8", errors=_ESCAPE).decode()


def _has_long_number(data: bytes | str) -> bool:
    return _LONG in (data.encode("utf-8", "replace") if isinstance(data, str) else data).translate(_DIGITS)


def _loads_exact(data: bytes | str) -> Any:
    """The slow path: any integer, any escape. Python's parser, told to be strict."""
    text = data if isinstance(data, str) else bytes(data).decode("utf-8")
    try:
        return json.loads(text, parse_constant=_refuse_constant, parse_float=_finite)
    except RecursionError as e:
        raise ValueError("nested too deep") from e


def _dumps_odd(value: Any) -> bytes:
    """The slow path: integers beyond 64 bits, lone surrogates, keys that are not strings."""
    try:
        text = json.dumps(_plain(value), ensure_ascii=False, separators=(",", ":"), default=_by_orjson)
    except RecursionError as e:
        raise ValueError("cannot be written as JSON: nested too deep, or it refers to itself") from e
    # A lone surrogate cannot be UTF-8; the escape is valid JSON and round-trips (platform.md A6).
    return text.encode("utf-8", errors=_ESCAPE)


def _plain(value: Any) -> Any:
    if isinstance(value, Fragment):
        return _plain(json.loads(orjson.dumps(value)))
    if isinstance(value, dict):
        return {_key(k): _plain(v) for k, v in value.items()}
    if isinstance(value, list | tuple):
        return [_plain(v) for v in value]
    if isinstance(value, float) and not math.isfinite(value):
        return None
    return _plain(value.value) if isinstance(value, Enum) else value


def _key(key: Any) -> str:
    """A dictionary key as JSON spells it: `true` and `null`, not Python's words."""
    if isinstance(key, Enum):
        return _key(key.value)
    if isinstance(key, str):
        return key
    if key is None or isinstance(key, bool | int | float):
        return json.dumps(key)
    raise TypeError(f"a JSON object cannot have the key {key!r}")


def _by_orjson(value: Any) -> Any:
    """Dates, dataclasses and what else orjson can write, on the slow path too."""
    return json.loads(orjson.dumps(value))


def _depth_exceeds(value: Any, limit: int) -> bool:
    level = [value]
    for _ in range(limit):
        level = [
            v for item in level if isinstance(item, dict | list) for v in (item.values() if isinstance(item, dict) else item)
        ]
        if not level:
            return False
    return any(isinstance(item, dict | list) for item in level)


def _finite(text: str) -> float:
    number = float(text)
    if math.isinf(number):
        raise ValueError(f"{text[:40]} is beyond a 64-bit float")
    return number


def _escape_surrogates(error: UnicodeError) -> tuple[str, int]:
    if not isinstance(error, UnicodeEncodeError):
        raise error
    bad = error.object[error.start : error.end]
    return "".join(f"\\u{ord(c):04x}" for c in bad), error.end


def _refuse_constant(name: str) -> NoReturn:
    raise ValueError(f"{name} is not JSON")


codecs.register_error(_ESCAPE, _escape_surrogates)
