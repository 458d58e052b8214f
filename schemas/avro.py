"""Avro schemas derived from the event classes, and the files that hold every version of them.

Owns `schemas/avsc/NAME.vN.avsc`. Invariant: a file once released never changes; a changed class gets a new version, and
`tests/unit/schemas/test_avro.py` checks that it still reads all earlier ones. `python -m schemas.avro` writes a new version.
"""

from __future__ import annotations

import dataclasses
import json
import re
import sys
import types
import typing
from importlib import resources
from pathlib import Path
from typing import Any

from schemas.events import EVENTS

NAMESPACE = "rollstream"

_PRIMITIVES: dict[object, str] = {str: "string", int: "long", float: "double", bytes: "bytes", bool: "boolean"}


def schema_of(cls: type) -> dict[str, Any]:
    """Avro record schema of an event class; nested classes are defined where they first occur."""
    return _record(cls, set())


def versions(name: str) -> dict[int, dict[str, Any]]:
    """Every stored version of the schema called `name` (lower case, dashes), by number."""
    pattern = re.compile(rf"^{re.escape(name)}\.v(\d+)\.avsc$")
    files = ((pattern.match(f.name), f) for f in resources.files("schemas").joinpath("avsc").iterdir())
    return dict(sorted((int(m[1]), json.loads(f.read_text("utf-8"))) for m, f in files if m))


def file_stem(cls: type) -> str:
    """`ToolCalls` → `tool-calls`."""
    return re.sub(r"(?<=[a-z])(?=[A-Z])", "-", cls.__name__).lower()


def _record(cls: type, seen: set[str]) -> dict[str, Any]:
    seen.add(cls.__name__)
    hints = typing.get_type_hints(cls)
    fields = [_field(f, hints[f.name], seen) for f in dataclasses.fields(cls)]
    return {"type": "record", "name": cls.__name__, "namespace": NAMESPACE, "fields": fields}


def _field(field: dataclasses.Field[Any], hint: object, seen: set[str]) -> dict[str, Any]:
    schema = {"name": field.name, "type": _type(hint, seen)}
    if field.default is not dataclasses.MISSING:
        schema["default"] = _default(field.default)
    return schema


def _default(value: Any) -> Any:
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        return {f.name: _default(getattr(value, f.name)) for f in dataclasses.fields(value)}
    if isinstance(value, tuple):
        return [_default(v) for v in value]
    return value.decode("latin-1") if isinstance(value, bytes) else value


def _type(hint: object, seen: set[str]) -> Any:
    if hint in _PRIMITIVES:
        return _PRIMITIVES[hint]
    origin, args = typing.get_origin(hint), typing.get_args(hint)
    if origin in (typing.Union, types.UnionType):
        (inner,) = (a for a in args if a is not type(None))
        return ["null", _type(inner, seen)]
    if origin is tuple:
        return {"type": "array", "items": _type(args[0], seen)}
    if isinstance(hint, type) and dataclasses.is_dataclass(hint):
        return f"{NAMESPACE}.{hint.__name__}" if hint.__name__ in seen else _record(hint, seen)
    raise TypeError(f"no Avro type for {hint!r}")


def main() -> None:
    """Write the next version of every schema whose class has changed."""
    folder = Path(__file__).parent / "avsc"
    for cls in EVENTS:
        known = versions(file_stem(cls))
        schema = schema_of(cls)
        if known and schema == list(known.values())[-1]:
            continue
        path = folder / f"{file_stem(cls)}.v{max(known, default=0) + 1}.avsc"
        path.write_text(json.dumps(schema, indent=2) + "\n", encoding="utf-8")
        sys.stdout.write(f"wrote {path}\n")


if __name__ == "__main__":
    main()
