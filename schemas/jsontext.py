r"""JSON in and out: fast on the ordinary path, never lossy on the odd one.

Owns the two rules of platform.md A6: non-finite numbers are not JSON, and a lone surrogate in a model's or tool's text
is written as a `\uXXXX` escape instead of killing the writer.
"""

from __future__ import annotations

import codecs
import json
import math
from collections.abc import Iterable
from typing import Any, NoReturn

import orjson

Fragment = orjson.Fragment

_ESCAPE = "rollstream.escape_surrogates"


def loads(data: bytes | str) -> Any:
    """Parse strict JSON.

    Raises `ValueError` for anything that is not JSON, including NaN, infinities and lone surrogates.
    """
    return orjson.loads(data)


def loads_lenient(data: bytes | str) -> Any:
    """Parse what a model server sent: strict JSON, or JSON whose strings hold lone surrogate escapes.

    Raises `ValueError` when it is not JSON even so.
    """
    try:
        return orjson.loads(data)
    except ValueError:
        return json.loads(data, parse_constant=_refuse_constant)


def dumps(value: Any) -> bytes:
    """Compact UTF-8 JSON, non-ASCII unescaped; lone surrogates escaped; non-finite floats become null."""
    try:
        return orjson.dumps(value)
    except (TypeError, ValueError):
        return _dumps_odd(value)


def non_finite_paths(value: Any, path: str = "") -> list[str]:
    """Dotted paths of every NaN or infinity inside `value`, in order of appearance."""
    if isinstance(value, float):
        return [] if math.isfinite(value) else [path]
    if isinstance(value, dict):
        children: Iterable[tuple[Any, Any]] = value.items()
    elif isinstance(value, list | tuple):
        children = enumerate(value)
    else:
        return []
    return [p for k, v in children for p in non_finite_paths(v, f"{path}.{k}" if path else str(k))]


def _dumps_odd(value: Any) -> bytes:
    """The slow path: integers beyond 64 bits, lone surrogates, keys that are not strings."""
    text = json.dumps(_without_fragments(value), ensure_ascii=False, separators=(",", ":"))
    # A lone surrogate cannot be UTF-8; the escape is valid JSON and round-trips (platform.md A6).
    return text.encode("utf-8", errors=_ESCAPE)


def _without_fragments(value: Any) -> Any:
    if isinstance(value, Fragment):
        return json.loads(orjson.dumps(value))
    if isinstance(value, dict):
        return {str(k): _without_fragments(v) for k, v in value.items()}
    if isinstance(value, list | tuple):
        return [_without_fragments(v) for v in value]
    if isinstance(value, float) and not math.isfinite(value):
        return None
    return value


def _escape_surrogates(error: UnicodeError) -> tuple[str, int]:
    if not isinstance(error, UnicodeEncodeError):
        raise error
    bad = error.object[error.start : error.end]
    return "".join(f"\\u{ord(c):04x}" for c in bad), error.end


def _refuse_constant(name: str) -> NoReturn:
    raise ValueError(f"{name} is not JSON")


codecs.register_error(_ESCAPE, _escape_surrogates)
