"""Request parameters and repeats as the command line spells them (platform.md B3, B4).

Invariant: what is not understood is an error that names the argument; nothing is guessed.
"""

from __future__ import annotations

import difflib
from collections.abc import Sequence
from typing import Any

from rollstream.runfiles.problems import PlanError
from rollstream.runfiles.repeats import Repeats
from schemas import jsontext
from schemas.rows import PARAMS, CreateParams

_WORDS = {"null": None, "true": True, "false": False}


def read_overrides(arguments: Sequence[str]) -> dict[str, Any]:
    """`[+]responses_create_params.KEY=VALUE` or `KEY=VALUE` to a mapping; a dotted key makes a nested one.

    A value is JSON where it can be read as such, else text. Raises `PlanError` for an unknown key, with the nearest known.
    """
    found: dict[str, Any] = {}
    for argument in arguments:
        key, separator, value = argument.lstrip("+").partition("=")
        path = key.strip().removeprefix(f"{PARAMS}.").split(".")
        if not separator or not all(path):
            raise PlanError(f"{argument}: write {PARAMS}.KEY=VALUE, such as {PARAMS}.temperature=0.7")
        _known(path[0])
        _put(found, path, _value(value), argument)
    return found


def read_repeats(arguments: Sequence[str]) -> Repeats:
    """`4`, or `AGENT=4` for each agent (several by comma, `_default` for the others); None when there is nothing.

    Raises `PlanError` for what is neither.
    """
    parts = [p.strip() for argument in arguments for p in argument.split(",") if p.strip()]
    if not parts:
        return None
    if len(parts) == 1 and "=" not in parts[0]:
        return _count(parts[0], parts[0])
    table: dict[str, int] = {}
    for part in parts:
        agent, separator, count = part.partition("=")
        if not separator or not agent.strip():
            raise PlanError(f"repeats {part}: write one number, or AGENT=NUMBER for each agent")
        if table.setdefault(agent.strip(), _count(count, part)) != int(count):
            raise PlanError(f"repeats {part}: {agent.strip()} has {table[agent.strip()]} already")
    return table


def _count(text: str, argument: str) -> int:
    if not text.strip().isdecimal() or not text.isascii():
        raise PlanError(f"repeats {argument}: the number of rollouts must be a whole number of at least 1")
    return int(text)


def _known(key: str) -> None:
    if key not in CreateParams.model_fields:
        near = difflib.get_close_matches(key, CreateParams.model_fields, 1)
        hint = f"did you mean {near[0]}?" if near else f"there are {', '.join(CreateParams.model_fields)}"
        raise PlanError(f"{PARAMS}.{key}: unknown key; {hint}")


def _value(text: str) -> Any:
    if text.strip().lower() in _WORDS:
        return _WORDS[text.strip().lower()]
    try:
        return jsontext.loads(text.encode("utf-8", "surrogatepass"))
    except ValueError:
        return text


def _put(found: dict[str, Any], path: Sequence[str], value: Any, argument: str) -> None:
    for key in path[:-1]:
        inner = found.setdefault(key, {})
        if not isinstance(inner, dict):
            raise PlanError(f"{argument}: {key} has a value already that is no mapping")
        found = inner
    if path[-1] in found:
        raise PlanError(f"{argument}: {'.'.join(path)} is given twice")
    found[path[-1]] = value
