"""Avro bodies of the event classes at the speed of straight-line code.

fastavro interprets a schema for each record: 20 µs to write a rollout's state of 28 fields and 30 to read it and build the
objects, twice over for each rollout and a tenth of the workers' CPU. Here one function to write and one to read is
generated for each class, as `dataclasses` generates `__init__`; 5 and 16 µs. Invariant: the bytes are those of fastavro with
the schema of `avro.schema_of`; a property test compares the two, and records of older schemas go through fastavro.

Only our own classes' field names reach the generated source.
"""

from __future__ import annotations

import dataclasses
import functools
import types
import typing
from collections.abc import Callable
from typing import Any

_SMALL = 4096
_REMEMBERED = 4096
"""Large numbers kept in both forms: times and offsets, which a rollout's events carry from stage to stage."""

_MAX_VARINT_BITS = 70  # ten groups of seven hold a 64-bit number

Write = Callable[[Any], bytes]
Read = Callable[[bytes, int], tuple[Any, int]]


@functools.cache
def writer(cls: type) -> Write:
    """A function from an event of class `cls` to its Avro body.

    It raises `UnicodeEncodeError` for lone surrogates and `ValueError` for a number beyond 64 bits.
    """
    source = _Source()
    source.write_record(cls, "e")
    code = ["def write(e):", *(f"    {line}" for line in source.before), f"    return b''.join(({', '.join(source.parts)},))"]
    return typing.cast("Write", _compiled(code, source.names)["write"])


@functools.cache
def reader(cls: type) -> Read:
    """A function from bytes and a position to an event of class `cls` and the position after it.

    It raises `ValueError` or `IndexError` for bytes that are not such a body; a position beyond the end means that the
    bytes ended early.
    """
    source = _Source()
    result = source.read_record(cls)
    code = ["def read(d, p):", *(f"    {line}" for line in source.before), f"    return {result}, p"]
    return typing.cast("Read", _compiled(code, source.names)["read"])


def _compiled(lines: list[str], names: dict[str, Any]) -> dict[str, Any]:
    namespace = {"Z": _TABLE, "zigzag": _zigzag, "long": _long, "length": _length, "count": _count, **names}
    exec("\n".join(lines), namespace)  # noqa: S102 - source made above from our own classes
    return namespace


class _Source:
    """Source in the making: statements, parts of the result, and the objects it refers to."""

    def __init__(self) -> None:
        self.before: list[str] = []
        self.parts: list[str] = []
        self.names: dict[str, Any] = {}
        self._used = 0

    def write_record(self, cls: type, value: str) -> None:
        for name, hint in _fields(cls):
            self._write(hint, f"{value}.{name}")

    def _write(self, hint: Any, value: str) -> None:
        origin, args = typing.get_origin(hint), typing.get_args(hint)
        if hint in (str, bytes):
            v, n = self._name(), self._name()
            self.before += [f"{v} = {value}.encode()" if hint is str else f"{v} = {value}", f"{n} = len({v})"]
            self.parts += [f"(Z[{n}] if {n} < {_SMALL} else zigzag({n}))", v]
        elif hint is int:
            v = self._name()
            self.before.append(f"{v} = {value}")
            self.parts.append(f"(Z[{v}] if 0 <= {v} < {_SMALL} else zigzag({v}))")
        elif hint is bool:
            self.parts.append(f"(b'\\1' if {value} else b'\\0')")
        elif hint is float:
            self.names["pack"] = _pack_double
            self.parts.append(f"pack({value})")
        elif origin is tuple:
            f = self._call(writer(args[0]))
            self.parts.append(f"(zigzag(len({value})) + b''.join(map({f}, {value})) + b'\\0' if {value} else b'\\0')")
        elif origin in (typing.Union, types.UnionType):
            f = self._call(_value_writer(_present(args)))
            self.parts.append(f"(b'\\0' if {value} is None else b'\\2' + {f}({value}))")
        else:
            v = self._name()
            self.before.append(f"{v} = {value}")
            self.write_record(hint, v)

    def read_record(self, cls: type) -> str:
        """Statements that read a record; the expression that builds it."""
        values = [self._read(hint) for _, hint in _fields(cls)]
        return f"{self._call(cls)}({', '.join(values)})"

    def _read(self, hint: Any) -> str:
        origin, args = typing.get_origin(hint), typing.get_args(hint)
        v = self._name()
        if hint in (str, bytes):
            decode = ".decode()" if hint is str else ""
            self.before += [
                f"{v} = d[p]",
                "p += 1",
                f"if {v} & 0x81: {v}, p = length(d, p - 1)",
                f"else: {v} >>= 1",
                f"{v}, p = d[p:p + {v}]{decode}, p + {v}",
            ]
        elif hint is int:
            self.before += [
                f"{v} = d[p]",
                "p += 1",
                f"if {v} & 0x81: {v}, p = long(d, p - 1)",
                f"else: {v} >>= 1",
            ]
        elif hint is bool:
            self.before += [f"{v} = d[p]", "p += 1", f"if {v} > 1: raise ValueError('not a boolean')", f"{v} = {v} == 1"]
        elif hint is float:
            self.names["unpack"] = _unpack_double
            self.before.append(f"{v}, p = unpack(d, p)")
        elif origin is tuple:
            f = self._call(reader(args[0]))
            self.before.append(f"{v}, p = ((), p + 1) if d[p] == 0 else count(d, p, {f})")
        elif origin in (typing.Union, types.UnionType):
            self._read_present(_present(args), v)
        else:
            inner = self.read_record(hint)
            self.before.append(f"{v} = {inner}")
        return v

    def _read_present(self, hint: Any, v: str) -> None:
        """Statements that read a value which may be absent into `v`."""
        before, self.before = self.before, []
        value = self._read(hint)
        inner, self.before = self.before, before
        self.before += [
            f"if d[p] == 0: {v}, p = None, p + 1",
            "elif d[p] == 2:",
            "    p += 1",
            *(f"    {line}" for line in inner),
            f"    {v} = {value}",
            "else: raise ValueError('no such branch')",
        ]

    def _name(self) -> str:
        self._used += 1
        return f"v{self._used}"

    def _call(self, target: Any) -> str:
        name = f"f{len(self.names)}"
        self.names[name] = target
        return name


def _fields(cls: type) -> list[tuple[str, Any]]:
    hints = typing.get_type_hints(cls)
    return [(f.name, hints[f.name]) for f in dataclasses.fields(cls)]


def _present(args: tuple[Any, ...]) -> Any:
    (present,) = (a for a in args if a is not type(None))
    return present


def _value_writer(hint: Any) -> Write:
    """The writer of a value that may be a plain one: that of a record with this one field."""
    if isinstance(hint, type) and dataclasses.is_dataclass(hint):
        return writer(hint)
    box = writer(_boxed(hint))
    make = _boxed(hint)
    return lambda value: box(make(value))


@functools.cache
def _boxed(hint: Any) -> Any:
    return dataclasses.make_dataclass("Boxed", [("value", hint)])


@functools.lru_cache(_REMEMBERED)
def _zigzag(number: int) -> bytes:
    """An Avro long: zigzag, then base 128, least significant group first."""
    if not -(1 << 63) <= number < 1 << 63:
        raise ValueError(f"{number} is beyond 64 bits")
    rest = number << 1 ^ number >> 63
    out = bytearray()
    while rest > 0x7F:  # noqa: PLR2004 - seven bits a byte
        out.append(rest & 0x7F | 0x80)
        rest >>= 7
    out.append(rest)
    return bytes(out)


_TABLE = tuple(_zigzag(n) for n in range(_SMALL))


_TIME_BYTES = 6
"""Epoch milliseconds as an Avro long, until the year 2039."""

_times: dict[bytes, int] = {}


def _long(data: bytes, at: int) -> tuple[int, int]:
    time = data[at : at + _TIME_BYTES]
    if time in _times:
        return _times[time], at + _TIME_BYTES
    value, after = _varint(data, at)
    if after == at + _TIME_BYTES:
        if len(_times) >= _REMEMBERED:
            _times.clear()
        _times[time] = value
    return value, after


def _varint(data: bytes, at: int) -> tuple[int, int]:
    value = shift = 0
    while True:
        byte = data[at]
        at += 1
        value |= (byte & 0x7F) << shift
        if byte < 0x80:  # noqa: PLR2004 - the last group
            return value >> 1 ^ -(value & 1), at
        shift += 7
        if shift >= _MAX_VARINT_BITS:
            raise ValueError("a number of more than 64 bits")


def _length(data: bytes, at: int) -> tuple[int, int]:
    size, at = _varint(data, at)
    if not 0 <= size <= len(data):
        raise ValueError(f"a length of {size}")
    return size, at


def _count(data: bytes, at: int, read: Read) -> tuple[tuple[Any, ...], int]:
    """An array: blocks of a count (negative: its size in bytes follows) and so many items, up to a count of 0."""
    items: list[Any] = []
    while True:
        size, at = _long(data, at)
        if size == 0:
            return tuple(items), at
        if size < 0:
            _, at = _long(data, at)
        if abs(size) > len(data):
            raise ValueError(f"an array of {abs(size)} items")
        for _ in range(abs(size)):
            item, at = read(data, at)
            items.append(item)


def _pack_double(value: float) -> bytes:
    import struct

    return struct.pack("<d", value)


def _unpack_double(data: bytes, at: int) -> tuple[float, int]:
    import struct

    (value,) = struct.unpack_from("<d", data, at)
    return value, at + 8
