"""Prompts made from a row's fields (platform.md B7): a YAML file with `user` and, perhaps, `system`.

Invariant: a template is read when the file is, so a stray brace stops the run before it begins; a field's text is put in as it
is and never read as a template itself.
"""

from __future__ import annotations

import difflib
import hashlib
import re
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from rollstream.runfiles.problems import PlanError
from schemas.errors import DataError
from schemas.rows import PARAMS, shown

USED = "prompt_config_used"
"""Field in which a rendered dataset names the file that its prompts are from."""

_KEYS = ("system", "user")
_PIECE = re.compile(r"(?P<open>\{\{)|(?P<close>\}\})|\{(?P<field>[^{}]*)\}|(?P<stray>[{}])")
_SHOWN = 30
"""Fields of a row that a message lists."""


class InputTakenError(DataError):
    """The row brings its own input, which a prompt config may not replace."""

    def __init__(self) -> None:
        super().__init__(f"it has a {PARAMS}.input of its own, and a prompt config is given")


@dataclass(frozen=True, slots=True)
class Template:
    """Text with fields: parts at even places are literal, those at odd ones names of fields."""

    parts: tuple[str, ...]

    @classmethod
    def parse(cls, text: str, where: str) -> Template:
        """Raises `PlanError` for a brace that belongs to nothing."""
        parts, literal, end = [], "", 0
        for m in _PIECE.finditer(text):
            literal += text[end : m.start()]
            end = m.end()
            if m["open"] or m["close"]:
                literal += m.group()[0]
            elif m["field"]:
                parts += [literal, m["field"]]
                literal = ""
            else:
                line = text.count("\n", 0, m.start()) + 1
                raise PlanError(f"{where}, line {line}: {m.group()} names no field; write {m.group() * 2} for a brace itself")
        return cls((*parts, literal + text[end:]))

    def render(self, row: Mapping[str, Any]) -> str:
        """The text for a row; raises `DataError` that names the missing field and those there are."""
        return "".join(_field(row, part) if i % 2 else part for i, part in enumerate(self.parts))


@dataclass(frozen=True, slots=True)
class PromptConfig:
    """A prompt config file, read. `digest` tells whether it was changed since."""

    path: Path
    digest: str
    user: Template
    system: Template | None = None
    warnings: tuple[str, ...] = ()

    @classmethod
    def read(cls, path: Path) -> PromptConfig:
        """Raises `PlanError` for what is no prompt config, `OSError` for a file that cannot be read."""
        data = path.read_bytes()
        value = _parsed(data, path)
        texts = {key: value[key] for key in _KEYS if value.get(key) is not None}
        for key, text in texts.items():
            if not isinstance(text, str):
                raise PlanError(f"{path}: {key} must be text, found {shown(text)}")
        if "user" not in texts:
            raise PlanError(f"{path}: a prompt config needs `user`; it has {', '.join(map(str, value)) or 'nothing'}")
        templates = {key: Template.parse(text, f"{path}: {key}") for key, text in texts.items()}
        digest = hashlib.sha256(data).hexdigest()
        return cls(path, digest, templates["user"], templates.get("system"), tuple(_unused(value, path)))

    def messages(self, row: Mapping[str, Any]) -> list[dict[str, str]]:
        """`[system?, user]` for a row; raises `DataError`."""
        parts = (("system", self.system), ("user", self.user))
        return [{"role": role, "content": template.render(row)} for role, template in parts if template is not None]

    def fill(self, row: dict[str, Any]) -> dict[str, Any]:
        """The row with its `input`; other request parameters stay. Raises `InputTakenError`, `DataError`."""
        params = row.get(PARAMS) or {}
        if not isinstance(params, dict):
            return row  # refused for that as every row is
        if params.get("input"):
            raise InputTakenError
        return {**row, PARAMS: {**params, "input": self.messages(row)}}


def _parsed(data: bytes, path: Path) -> dict[str, Any]:
    import yaml

    try:
        value = yaml.safe_load(data)
    except (yaml.YAMLError, ValueError, RecursionError) as e:
        raise PlanError(f"{path} is not YAML: {' '.join(str(e).split())}") from e
    if not isinstance(value, dict):
        raise PlanError(f"{path}: a prompt config is a mapping with `user` and, perhaps, `system`")
    return value


def _unused(value: Mapping[Any, Any], path: Path) -> list[str]:
    found = []
    for key in (str(k) for k in value if k not in _KEYS):
        near = difflib.get_close_matches(key, _KEYS, 1)
        found.append(f"{path}: {key} is not used{f'; did you mean {near[0]}?' if near else ''}")
    return found


def _field(row: Mapping[str, Any], name: str) -> str:
    if name not in row:
        names = sorted(row)
        listed = ", ".join(names[:_SHOWN]) + (", …" if len(names) > _SHOWN else "")
        raise DataError(f"the prompt config needs the field {name}; the row has {listed or 'none'}")
    return str(row[name])
