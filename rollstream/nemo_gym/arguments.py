"""A call as the command line of one of our commands.

Owns which options a command of ours has (asked at run time: commands come and go) and how a key becomes one. Invariant: a key
that was set for the command and cannot be passed on is told, never left out in silence.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from rollstream.nemo_gym.errors import ConfigurationError
from rollstream.nemo_gym.merging import leaves
from rollstream.nemo_gym.words import POSITIONAL, TRUE_FALSE, Word
from schemas import jsontext

PARAMS = "responses_create_params"

_TAKEN_ELSEWHERE = frozenset({"no_serve", "name", "verbose", "dry_run", "results_dir", "split", "entrypoint"})
"""Read by what prepares the call, not passed on under their names."""


def command_of(word: Word, typed: str) -> tuple[str, frozenset[str]]:
    """The name of our command and the options that it has; raises `ConfigurationError` when this version has none of it."""
    import typer

    from rollstream.cli import app

    for name in word.ours:
        command: Any = typer.main.get_command(app)
        for part in name.split():
            command = getattr(command, "commands", {}).get(part)
            if command is None:
                break
        else:
            return name, frozenset(o for p in command.params for o in (*p.opts, *p.secondary_opts))
    raise ConfigurationError(
        f"{typed} is `rollstream {word.ours[0]}` here, and this version has no such command yet; `rollstream --help` lists them"
    )


def options(word: Word, values: Mapping[str, Any], has: frozenset[str]) -> tuple[list[str], list[str]]:
    """Our arguments for the keys of a call, positional ones last, and the keys that none of them stands for."""
    flags: list[str] = []
    places: list[str] = []
    left: list[str] = []
    for key, value in _settings(values, word):
        option = word.options.get(key)
        if key.startswith(f"{PARAMS}.") and word.name == "eval run":
            places.append(f"{key}={jsontext.dumps(value).decode()}")
        elif option == POSITIONAL:
            places += map(str, value if isinstance(value, list) else [value])
        elif option is not None and _fits(made := list(_made(option, value, has)), value, option):
            flags += made
        elif key.split(".")[0] not in _TAKEN_ELSEWHERE:
            left.append(key)
    return [*flags, *places], left


def _settings(values: Mapping[str, Any], word: Word) -> Iterator[tuple[str, Any]]:
    """The keys of a call with their values; those of maps one by one, where the map as a whole is no option."""
    for key, value in values.items():
        if value is None:
            continue
        if isinstance(value, dict) and key == PARAMS:
            yield from ((f"{key}.{k}", v) for k, v in value.items())
        elif isinstance(value, dict) and key not in word.options:
            yield from ((".".join((key, *path)), v) for path, v in leaves(value))
        else:
            yield key, value


def _made(option: str, value: Any, has: frozenset[str]) -> Iterator[str]:
    if TRUE_FALSE in option:
        chosen = option.split(TRUE_FALSE)[0 if value else 1]
        if chosen in has:
            yield chosen
    elif option in has:
        for text in _texts(value):
            yield from (option, text)


def _fits(made: Sequence[str], value: Any, option: str) -> bool:
    """Whether something came of it; a switch that is off needs no option."""
    return bool(made) or (TRUE_FALSE in option and not value)


def _texts(value: Any) -> list[str]:
    if isinstance(value, dict):
        return [f"{k}={v}" for k, v in value.items()]
    return [str(v) for v in value] if isinstance(value, list) else [str(value)]
