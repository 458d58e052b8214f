"""Events to bytes and back: Avro single-object encoding.

A record is two marker bytes, the CRC-64-AVRO fingerprint of the writer's schema, and the Avro body (Avro 1.12
specification, "Single-object encoding"). Invariant: whatever any released version wrote can be read; bytes of an unknown
schema are a `DataError` that names the fingerprint, never a guess.
"""

from __future__ import annotations

import dataclasses
import io
import struct
import typing
from collections.abc import Callable
from typing import Any, TypeVar

import fastavro
from fastavro.schema import fingerprint, to_parsing_canonical_form

from schemas import avro, compiled, jsontext
from schemas.errors import DataError
from schemas.events import EVENTS, Event

MARKER = b"\xc3\x01"
_HEADER = len(MARKER) + 8

E = TypeVar("E", bound=Event)


def is_avro(data: bytes) -> bool:
    """Whether `data` starts like a single-object encoded record (no JSON text does)."""
    return data[:2] == MARKER


def encode(event: Event) -> bytes:
    r"""Bytes of an event, written with the newest schema of its class.

    Lone surrogates, which a model may well write and UTF-8 cannot hold, are written as `\uXXXX`: inside the JSON text of
    a tool call's arguments that is the same string. Raises `DataError` for a number that Avro's long cannot hold.
    """
    writer = _writers()[type(event)]
    try:
        return writer.header + writer.write(event)
    except UnicodeEncodeError:
        return _written(writer, _utf8(_plain(event)))
    except (ValueError, OverflowError) as e:
        raise DataError(f"{type(event).__name__} event cannot be written: {e}") from e


def decode(data: bytes, cls: type[E]) -> E:
    """The event of class `cls` in `data`.

    Raises `DataError` when the bytes are not single-object Avro, their schema is unknown or of another class, or the
    body does not decode.
    """
    newest = _writers()[cls]
    try:
        if data[:_HEADER] == newest.header:
            event, end = newest.read(data, _HEADER)
        else:
            event, end = _older(data, cls)
    except (EOFError, ValueError, TypeError, IndexError, KeyError, OverflowError, MemoryError, struct.error) as e:
        raise DataError(f"{cls.__name__} event cannot be decoded: {e!r}") from e
    if end != len(data):
        what = "bytes are left over after its end" if end < len(data) else "it ends too early"
        raise DataError(f"{cls.__name__} event cannot be decoded: {what}")
    return typing.cast("E", event)


def _older(data: bytes, cls: type) -> tuple[Any, int]:
    """An event of an earlier schema, read by fastavro; refuses what is not one."""
    if not is_avro(data):
        raise DataError(f"expected an Avro {cls.__name__} event; the record does not start with the Avro marker c3 01")
    known = _readers(cls)
    schema = known.get(data[2:_HEADER])
    if schema is None:
        raise DataError(
            f"unknown Avro schema {data[2:_HEADER].hex()} (known for {cls.__name__}: {', '.join(k.hex() for k in known)})"
        )
    body = io.BytesIO(data[_HEADER:])
    fields = fastavro.schemaless_reader(body, schema, _writers()[cls].schema)
    return _built(cls, fields), _HEADER + body.tell()


@dataclasses.dataclass(frozen=True, slots=True)
class _Writer:
    header: bytes
    schema: Any
    write: compiled.Write
    read: compiled.Read


_WRITERS: dict[type, _Writer] = {}
_READERS: dict[type, dict[bytes, Any]] = {}


def _writers() -> dict[type, _Writer]:
    if not _WRITERS:
        for cls in EVENTS:
            newest = list(avro.versions(avro.file_stem(cls)).values())[-1]
            mark = _fingerprint(newest)
            _WRITERS[cls] = _Writer(MARKER + mark, _readers(cls)[mark], compiled.writer(cls), compiled.reader(cls))
    return _WRITERS


def _readers(cls: type) -> dict[bytes, Any]:
    if cls not in _READERS:
        stored = avro.versions(avro.file_stem(cls)).values()
        _READERS[cls] = {_fingerprint(s): fastavro.parse_schema(s) for s in stored}
    return _READERS[cls]


def _fingerprint(schema: dict[str, Any]) -> bytes:
    return bytes.fromhex(fingerprint(to_parsing_canonical_form(schema), "CRC-64-AVRO"))


def _written(writer: _Writer, fields: dict[str, Any]) -> bytes:
    out = io.BytesIO()
    out.write(writer.header)
    fastavro.schemaless_writer(out, writer.schema, fields)
    return out.getvalue()


def _utf8(value: Any) -> Any:
    if isinstance(value, str):
        return jsontext.without_surrogates(value)
    if isinstance(value, dict):
        return {k: _utf8(v) for k, v in value.items()}
    return [_utf8(v) for v in value] if isinstance(value, list) else value


def _plain(event: Any) -> dict[str, Any]:
    """The event as fastavro wants it: nested classes as dicts. `dataclasses.asdict` deep-copies and costs four times this."""
    convert = _CONVERTERS.get(type(event)) or _make_converter(type(event))
    return convert(event)


_CONVERTERS: dict[type, Callable[[Any], dict[str, Any]]] = {}
_BUILDERS: dict[type, Callable[[Any], Any]] = {}


def _make_converter(cls: type) -> Callable[[Any], dict[str, Any]]:
    names = tuple(f.name for f in dataclasses.fields(cls))
    nested, many = _nested(cls)

    def convert(event: Any) -> dict[str, Any]:
        plain = {n: getattr(event, n) for n in names}
        for n in nested:
            value = plain[n]
            plain[n] = [_plain(v) for v in value] if n in many else None if value is None else _plain(value)
        return plain

    _CONVERTERS[cls] = convert
    return convert


def _built(cls: type, fields: Any) -> Any:
    """The reverse of `_plain`; takes the dict over."""
    return (_BUILDERS.get(cls) or _make_builder(cls))(fields)


def _make_builder(cls: type) -> Callable[[Any], Any]:
    nested, many = _nested(cls)

    def build(fields: Any) -> Any:
        for n, inner in nested.items():
            value = fields[n]
            fields[n] = (
                tuple([_built(inner, v) for v in value]) if n in many else None if value is None else _built(inner, value)
            )
        return cls(**fields)

    _BUILDERS[cls] = build
    return build


def _nested(cls: type) -> tuple[dict[str, type], frozenset[str]]:
    """The fields that hold other dataclasses, each with its class; and those of them that hold many."""
    hints = typing.get_type_hints(cls)
    found = {f.name: inner for f in dataclasses.fields(cls) for inner in _classes(hints[f.name])}
    return found, frozenset(n for n in found if typing.get_origin(hints[n]) is tuple)


def _classes(hint: object) -> list[type]:
    args = typing.get_args(hint)
    if args:
        return [c for a in args for c in _classes(a)]
    return [hint] if isinstance(hint, type) and dataclasses.is_dataclass(hint) else []
