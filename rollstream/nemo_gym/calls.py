"""A call of one of the reference's words, read: which word, what it sets, which configurations it names.

Owns the way from a command line to overrides, for the older words (`ng_run +key=value`) and the newer ones (`gym env start
--config …`). Invariant: each argument is an override, a known flag with its value, or an error with the nearest word.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field

from environments.words import nearest
from rollstream.nemo_gym.errors import ConfigurationError
from rollstream.nemo_gym.overrides import Mode, Override, parse
from rollstream.nemo_gym.words import ALIASES, FLAGS, OLD, SELECTORS, SWITCHES, WORDS, Word, word

_GROUPS = ("env", "eval", "dataset", "list")


@dataclass(slots=True)
class Call:
    """One call. `typed`: the word as it was typed; `names`: arguments that are no flags and set nothing."""

    typed: str
    word: Word
    overrides: list[Override] = field(default_factory=list)
    configs: list[str] = field(default_factory=list)
    selectors: list[tuple[str, str]] = field(default_factory=list)
    search: list[str] = field(default_factory=list)
    names: list[str] = field(default_factory=list)
    help: bool = False


def old_call(program: str, arguments: Sequence[str]) -> Call:
    """The call of an older word by the program's name (`ng_run`); raises `ConfigurationError`."""
    name = program.removeprefix("nemo_gym_").removeprefix("ng_")
    if name not in OLD:
        raise ConfigurationError(f"{program}: there is no such word{nearest(program, (f'ng_{w}' for w in OLD))}")
    newer = OLD[name].split()
    return _read(program, [*newer, *arguments])


def new_call(arguments: Sequence[str]) -> Call:
    """The call of a newer word (`gym env start …`); raises `ConfigurationError`."""
    first = arguments[0] if arguments else "help"
    if first in ("--version", "-V"):
        return _read("gym --version", ["version", *arguments[1:]])
    if first in ("--help", "-h"):
        return _read("gym --help", ["help"])
    if first in ("-v", "--verbose") and len(arguments) > 1:
        return new_call([*arguments[1:], first])
    return _read("gym", arguments or ["help"])


def _read(program: str, arguments: Sequence[str]) -> Call:
    name, rest = _name(program, list(arguments))
    typed = program if program != "gym" else f"gym {name}"
    call = Call(typed, word(ALIASES.get(name, name)))
    queue = list(rest)
    while queue:
        _take(call, queue)
    return call


def _name(program: str, arguments: list[str]) -> tuple[str, list[str]]:
    length = 2 if arguments[0] in _GROUPS else 1
    name, known = " ".join(arguments[:length]), [*(w.name for w in WORDS), *ALIASES]
    if name not in known:
        hint = nearest(" ".join(arguments[:2]), known)
        raise ConfigurationError(f"{program} {name}: there is no such word{hint}; `gym --help` lists them")
    return name, arguments[length:]


def _take(call: Call, queue: list[str]) -> None:
    """One argument, with its value."""
    argument = queue.pop(0)
    flag, separator, value = argument.partition("=")
    if argument in ("-h", "--help"):
        call.help = True
    elif not argument.startswith("-"):
        _take_word(call, argument)
    elif flag in SWITCHES and not separator:
        _set(call, *SWITCHES[flag])
    elif flag in (*FLAGS, *SELECTORS, "--config", "--search-dir"):
        if not separator and not queue:
            raise ConfigurationError(f"{call.typed}: {flag} needs a value")
        _take_flag(call, flag, value if separator else queue.pop(0))
    else:
        known = [*FLAGS, *SWITCHES, *SELECTORS, "--config", "--search-dir"]
        raise ConfigurationError(f"{call.typed}: there is no flag {flag}{nearest(flag, known)}")


def _take_word(call: Call, argument: str) -> None:
    if "=" in argument or argument.startswith("~"):
        override = parse(argument)
        if override.path in (("help",), ("h",)):
            call.help = bool(override.value)
        else:
            call.overrides.append(override)
    else:
        call.names.append(argument)


def _take_flag(call: Call, flag: str, value: str) -> None:
    if flag == "--config":
        call.configs.append(value)
    elif flag == "--search-dir":
        call.search.append(value)
    elif flag in SELECTORS:
        call.selectors.append((flag.removeprefix("--"), value))
    else:
        key = FLAGS[flag]
        _set(call, key, parse(f"{key}={value}").value if key in _READ else value)


_READ = frozenset(
    {
        "limit",
        "num_repeats",
        "num_samples_in_parallel",
        "responses_create_params.temperature",
        "responses_create_params.top_p",
        "responses_create_params.max_output_tokens",
    }
)
"""Flags whose value is read as one (a number, a map); those of the others are texts as they stand."""


def _set(call: Call, key: str, value: object) -> None:
    call.overrides.append(Override(tuple(key.split(".")), value, Mode.FORCE))


def paths_of(selectors: Iterable[tuple[str, str]]) -> list[list[str]]:
    """For each selector the paths that it may mean, the likeliest first (NAME or NAME/FLAVOUR)."""
    return [_paths(kind, *_parts(value)) for kind, value in selectors]


def _parts(value: str) -> tuple[str, str | None]:
    name, separator, flavour = value.rpartition("/")
    return (name, flavour) if separator else (value, None)


def _paths(kind: str, name: str, flavour: str | None) -> list[str]:
    if kind == "model-type":
        return [f"responses_api_models/{name}/configs/{flavour or name}.yaml"]
    if kind == "resources-server":
        return [f"resources_servers/{name}/configs/{flavour or name}.yaml"]
    folder = f"{kind}s" if kind == "benchmark" else "environments"
    if flavour:
        return [
            f"{folder}/{name}/{flavour}.yaml",
            f"{folder}/{name}/configs/{flavour}.yaml",
            *_paths("resources-server", name, flavour),
        ]
    return [f"{folder}/{name}/config.yaml", f"resources_servers/{name}/configs/{name}.yaml"]
