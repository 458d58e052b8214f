"""Where values come from: flags, then environment variables, then a file, then defaults.

Owns the order, the file formats and the error messages. Invariant: every value of the outcome can be traced to the one
source that set it, and a key that nobody knows is an error wherever it stands.
"""

from __future__ import annotations

import difflib
import os
import tomllib
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import yaml
from pydantic import BaseModel, ValidationError
from pydantic_settings import BaseSettings, EnvSettingsSource, InitSettingsSource, PydanticBaseSettingsSource
from pydantic_settings.exceptions import SettingsError as SourceError

from rollstream.settings.model import ENV_DELIMITER, ENV_PREFIX, Settings

DEFAULT_FILES = ("rollstream.toml", "rollstream.yaml", "rollstream.yml")
"""Looked for in the working directory, in this order."""

FILE_VARIABLE = f"{ENV_PREFIX}CONFIG"

OTHER_VARIABLES = frozenset(
    ENV_PREFIX + name
    for name in ("CONFIG", "BROKER_DIR", "CACHE_DIR", "DECLARED_VARIANTS", "JAVA", "KAFKA_HOME", "MAVEN_REPOSITORY")
)
"""Ours, and no settings: this file's name, what a process tells those it starts (`environments.own`), and what the local
broker runs on (`rollstream.broker`)."""

_NEAR = 0.85
"""How like a setting's a variable's name must be before we call it a misspelling. Other programs own names that begin
like ours: Kubernetes gives every pod `ROLLSTREAM_AGENT_SERVICE_HOST` for a service called rollstream-agent."""


class SettingsError(ValueError):
    """A setting is unknown, out of bounds or unreadable; the message has one line for each and says where it stands."""


@dataclass(frozen=True, slots=True)
class Loaded:
    """The outcome, and for every dotted key where its value came from (`flag`, `environment VAR`, `file PATH`, `default`)."""

    settings: Settings
    origins: Mapping[str, str]


def load(flags: Mapping[str, Any] | None = None, config: Path | str | None = None) -> Loaded:
    """Settings from `flags` (dotted key → value; None means not given), the environment, a file and the defaults.

    The file is `config`, else the one that `ROLLSTREAM_CONFIG` names, else `rollstream.toml` (or `.yaml`) in the working
    directory. Raises `SettingsError`.
    """
    given = _nested({k: v for k, v in (flags or {}).items() if v is not None})
    path = _file(config)
    stored = _read(path) if path else {}
    try:
        environment = EnvSettingsSource(Settings)()
    except SourceError as e:
        raise SettingsError(f"environment: {e} ({e.__cause__})") from e
    sources = {"flag": given, "environment": environment, f"file {path}": stored}
    problems = _misspelt_variables(os.environ)
    try:
        merged = _settings_from(stored)(**given)
    except ValidationError as e:
        raise SettingsError("\n".join([*problems, *_describe(e, sources)])) from e
    if problems:
        raise SettingsError("\n".join(problems))
    settings = Settings.model_construct(**{name: getattr(merged, name) for name in Settings.model_fields})
    return Loaded(settings, {key: _origin(key, sources) for key, _ in leaves(settings)})


def leaves(model: BaseModel, prefix: str = "") -> Iterator[tuple[str, Any]]:
    """Every setting as (dotted key, value), in the order of declaration; of a free object, its fields."""
    for name in type(model).model_fields:
        value = getattr(model, name)
        if isinstance(value, BaseModel):
            yield from leaves(value, f"{prefix}{name}.")
        elif isinstance(value, dict) and all(isinstance(v, BaseModel) for v in value.values()) and (value or not prefix):
            for key, section in value.items():
                yield from leaves(section, f"{prefix}{name}.{key}.")
        elif isinstance(value, dict) and value:
            yield from ((f"{prefix}{name}.{key}", part) for key, part in value.items())
        else:
            yield f"{prefix}{name}", value


def variable(key: str) -> str:
    """The environment variable of a dotted key: `model.url` → `ROLLSTREAM_MODEL__URL`."""
    return ENV_PREFIX + key.replace(".", ENV_DELIMITER).upper()


def _settings_from(stored: dict[str, Any]) -> type[Settings]:
    """`Settings` with a file below the environment. A class, because pydantic-settings takes its sources from one."""

    class FromFile(Settings):
        @classmethod
        def settings_customise_sources(
            cls,
            settings_cls: type[BaseSettings],
            init_settings: PydanticBaseSettingsSource,
            env_settings: PydanticBaseSettingsSource,
            dotenv_settings: PydanticBaseSettingsSource,  # noqa: ARG003 - the signature is pydantic's
            file_secret_settings: PydanticBaseSettingsSource,  # noqa: ARG003
        ) -> tuple[PydanticBaseSettingsSource, ...]:
            return init_settings, env_settings, InitSettingsSource(settings_cls, init_kwargs=stored)

    return FromFile


def _file(config: Path | str | None) -> Path | None:
    named = config or os.environ.get(FILE_VARIABLE)
    if named:
        path = Path(named)
        if not path.is_file():
            raise SettingsError(f"{path}: there is no such file (named by {'--config' if config else FILE_VARIABLE})")
        return path
    return next((p for p in map(Path, DEFAULT_FILES) if p.is_file()), None)


def _read(path: Path) -> dict[str, Any]:
    try:
        text = path.read_text("utf-8")
        value = tomllib.loads(text) if path.suffix == ".toml" else yaml.safe_load(text)
    except (OSError, UnicodeDecodeError, tomllib.TOMLDecodeError, yaml.YAMLError) as e:
        raise SettingsError(f"{path}: {' '.join(str(e).split())}") from e
    if not isinstance(value, dict | None):
        raise SettingsError(f"{path}: expected sections such as [kafka], found {type(value).__name__}")
    return value or {}


def _nested(flat: Mapping[str, Any]) -> dict[str, Any]:
    out: dict[str, Any] = {}
    for key, value in flat.items():
        *path, last = key.split(".")
        section = out
        for name in path:
            section = section.setdefault(name, {})
            if not isinstance(section, dict):
                raise SettingsError(f"{key}: {name} is a single value, not a section")
        section[last] = value
    return out


def _origin(key: str, sources: Mapping[str, dict[str, Any]]) -> str:
    found = next((name for name, values in sources.items() if _holds(values, key.split("."))), "default")
    return f"environment {variable(key)}" if found == "environment" else found


def _holds(values: Any, path: list[str]) -> bool:
    for name in path:
        if not isinstance(values, dict) or name not in values:
            return False
        values = values[name]
    return True


def _describe(error: ValidationError, sources: Mapping[str, dict[str, Any]]) -> list[str]:
    lines = []
    for e in error.errors(include_url=False, include_context=False):
        path = [str(p) for p in e["loc"]]
        key = ".".join(path)
        what = f"unknown setting{_nearest(path)}" if e["type"] == "extra_forbidden" else e["msg"].removeprefix("Value error, ")
        lines.append(f"{key}: {what} ({_origin(key, sources)})")
    return lines


def _nearest(path: list[str]) -> str:
    keys = [k for k, _ in leaves(Settings.model_construct())]
    near = difflib.get_close_matches(".".join(path), [*keys, *Settings.model_fields], n=1)
    return f"; did you mean {near[0]}?" if near else "; `rollstream config` lists them all"


def _misspelt_variables(environ: Mapping[str, str]) -> list[str]:
    """Variables that are meant for us and name no setting. Those of a known section are caught by its model."""
    known = [variable(k) for k, _ in leaves(Settings.model_construct())]
    ours = {*known, *(variable(name) for name in Settings.model_fields), *OTHER_VARIABLES}
    problems = []
    for name in sorted(n.upper() for n in environ if n.upper().startswith(ENV_PREFIX)):
        section = name.removeprefix(ENV_PREFIX).split(ENV_DELIMITER)[0].lower()
        if name in ours or (ENV_DELIMITER in name and section in Settings.model_fields):
            continue
        near = difflib.get_close_matches(name, known, n=1, cutoff=0.0 if ENV_DELIMITER in name else _NEAR)
        if near:
            problems.append(f"{name}: no such setting; did you mean {near[0]}? (environment)")
    return problems
