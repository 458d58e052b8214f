"""Comparing a result with what a case expects: a subset, dotted paths, numbers within a tolerance.

Of texts whose wording is ours a case says less: `NAME_present` whether there is one, `NAME_prefix` how it begins.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

RELATIVE = 1e-6
"""Numbers agree to this, relative, unless the case says otherwise (conformance README)."""

_NOTHING = object()


def differences(expected: Mapping[str, Any], result: Any, tolerance: Any = None, path: str = "") -> list[str]:
    """What differs, a line each. `tolerance` is absolute: a number for all, or an object from path to number."""
    found = []
    for key, wanted in expected.items():
        where = f"{path}.{key}" if path else key
        found += _differences(*_meant(key, wanted, result), tolerance, where)
    return found


def _meant(key: str, wanted: Any, result: Any) -> tuple[Any, Any]:
    """What is wanted and what there is, of a field or of a statement about one."""
    actual = _lookup(result, key)
    if actual is not _NOTHING:
        return wanted, actual
    if key.endswith("_present") and isinstance(wanted, bool):
        return wanted, _lookup(result, key.removesuffix("_present")) not in (_NOTHING, None, "")
    text = _lookup(result, key.removesuffix("_prefix"))
    if key.endswith("_prefix") and isinstance(text, str) and isinstance(wanted, str):
        return wanted, text[: len(wanted)]
    return wanted, actual


def _differences(wanted: Any, actual: Any, tolerance: Any, where: str) -> list[str]:
    if isinstance(wanted, Mapping) and isinstance(actual, Mapping):
        return differences(wanted, actual, tolerance, where)
    if isinstance(wanted, list) and isinstance(actual, Sequence) and not isinstance(actual, str) and len(wanted) == len(actual):
        return [
            line
            for i, (w, a) in enumerate(zip(wanted, actual, strict=True))
            for line in _differences(w, a, tolerance, f"{where}.{i}")
        ]
    if _equal(wanted, actual, _allowed(tolerance, where)):
        return []
    return [f"{where}: expected {wanted!r}, found {'nothing' if actual is _NOTHING else repr(actual)}"]


def _equal(wanted: Any, actual: Any, tolerance: float) -> bool:
    if isinstance(wanted, bool) is not isinstance(actual, bool):
        return False
    if isinstance(wanted, int | float) and isinstance(actual, int | float) and wanted != actual:
        return math.isclose(wanted, actual, rel_tol=RELATIVE, abs_tol=tolerance)
    return bool(wanted == actual)


def _allowed(tolerance: Any, where: str) -> float:
    return float(tolerance.get(where, 0.0) if isinstance(tolerance, Mapping) else tolerance or 0.0)


def _lookup(result: Any, key: str) -> Any:
    """The value under `key`, which may be a dotted path; a key that really contains dots wins. A path into null gives null."""
    if isinstance(result, Mapping) and key in result:
        return result[key]
    for part in key.split("."):
        if result is None:
            return None
        if isinstance(result, Mapping) and part in result:
            result = result[part]
        elif isinstance(result, Sequence) and not isinstance(result, str) and part.isdigit() and int(part) < len(result):
            result = result[int(part)]
        else:
            return _NOTHING
    return result
