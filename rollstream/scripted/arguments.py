"""Arguments that fit a tool's JSON schema, made of nothing but the prompt and a hash.

Invariant: a pure function that ends for every schema, recursive ones included.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

MAX_DEPTH = 8
"""Deeper levels of a schema become null: schemas may refer to themselves."""

_WORD = re.compile(r"[^\W\d_]{3,24}")
_SMALL = 9
_MANY = 1000
_FALLBACK = "example"


@dataclass(frozen=True, slots=True)
class Source:
    """What values are drawn from: the words of the prompt, numbers that tools have returned, and a hash."""

    prompt: str
    numbers: Sequence[int]
    digest: bytes

    def pick(self, path: str, count: int) -> int:
        """A choice below `count`, the same whenever path and request are."""
        return (self.digest[len(path) % len(self.digest)] + sum(path.encode("utf-8", "replace"))) % max(count, 1)

    def word(self, path: str) -> str:
        """A word of the prompt; names (capitalised, not at the beginning of the text) come first."""
        words = _WORD.findall(self.prompt)
        pool = [w for w in words[1:] if w[0].isupper()] or words
        return pool[self.pick(path, len(pool))] if pool else _FALLBACK


def arguments(schema: Any, source: Source) -> dict[str, Any]:
    """An object that fits `schema`; empty when the schema asks for nothing or is none."""
    value = _value(schema, schema, source, "", 0)
    return value if isinstance(value, dict) else {}


def _value(schema: Any, root: Any, source: Source, path: str, depth: int) -> Any:
    schema = _resolved(schema, root)
    if not isinstance(schema, Mapping) or depth > MAX_DEPTH:
        return None
    if "const" in schema:
        return schema["const"]
    choices = schema.get("enum")
    if isinstance(choices, list) and choices:
        return choices[source.pick(path, len(choices))]
    for word in ("anyOf", "oneOf", "allOf"):
        options = [o for o in schema.get(word) or () if _resolved(o, root).get("type") != "null"]
        if options:
            return _value(options[0], root, source, path, depth + 1)
    return _of_type(_type_of(schema), schema, root, source, path, depth)


def _of_type(kind: str, schema: Mapping[str, Any], root: Any, source: Source, path: str, depth: int) -> Any:  # noqa: PLR0911
    match kind:
        case "object":
            return _object(schema, root, source, path, depth)
        case "array":
            return _array(schema, root, source, path, depth)
        case "string":
            return _string(schema, source, path)
        case "integer":
            return int(_number(schema, source, path))
        case "number":
            return _number(schema, source, path)
        case "boolean":
            return bool(source.pick(path, 2))
    return None


def _object(schema: Mapping[str, Any], root: Any, source: Source, path: str, depth: int) -> dict[str, Any]:
    properties = schema.get("properties")
    properties = properties if isinstance(properties, Mapping) else {}
    required = schema.get("required")
    names = required if isinstance(required, list) else list(properties)
    return {n: _value(properties.get(n), root, source, f"{path}.{n}", depth + 1) for n in names if isinstance(n, str)}


def _array(schema: Mapping[str, Any], root: Any, source: Source, path: str, depth: int) -> list[Any]:
    items = schema.get("items")
    least, most = _bound(schema, "minItems", 1), _bound(schema, "maxItems", _MANY)
    if _any_integer(_resolved(items, root)) and least <= len(source.numbers) <= most and source.numbers:
        return list(source.numbers)
    count = min(max(least, 1), max(most, 0), _MANY)
    return [_value(items, root, source, f"{path}.{i}", depth + 1) for i in range(count)]


def _any_integer(schema: Mapping[str, Any]) -> bool:
    """Whether every integer fits, so that what a tool returned may be handed on."""
    return schema.get("type") == "integer" and schema.keys() <= {"type", "title", "description"}


def _string(schema: Mapping[str, Any], source: Source, path: str) -> str:
    word = source.word(path)
    least = min(_bound(schema, "minLength", 0), 1 << 12)
    return word.ljust(least, "x")[: max(_bound(schema, "maxLength", 1 << 12), 0)]


def _number(schema: Mapping[str, Any], source: Source, path: str) -> float:
    low = _bound(schema, "minimum", _bound(schema, "exclusiveMinimum", 0) + 1)
    high = _bound(schema, "maximum", _bound(schema, "exclusiveMaximum", low + _SMALL) - 1)
    return low + source.pick(path, min(int(high - low) + 1, _SMALL)) if high >= low else high


def _bound(schema: Mapping[str, Any], name: str, default: int) -> int:
    value = schema.get(name)
    return int(value) if isinstance(value, int | float) and abs(value) < 1 << 53 else default


def _type_of(schema: Any) -> str:
    kind = schema.get("type") if isinstance(schema, Mapping) else None
    if isinstance(kind, list):
        kind = next((k for k in kind if k != "null"), "null")
    if isinstance(kind, str):
        return kind
    return "object" if isinstance(schema, Mapping) and "properties" in schema else "string"


def _resolved(schema: Any, root: Any) -> Any:
    """`schema`, or what its `$ref` into the same document points to."""
    ref = schema.get("$ref") if isinstance(schema, Mapping) else None
    if not isinstance(ref, str):
        return schema if isinstance(schema, Mapping) else {}
    target = root
    for part in ref.removeprefix("#/").split("/"):
        target = target.get(part) if isinstance(target, Mapping) else None
    return target if isinstance(target, Mapping) else {}
