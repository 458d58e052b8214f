"""Prompts with named places, as files that people edit.

Owns how a place is filled. Invariant: what is filled in is copied as it is and never read again, so braces or names of
places inside an answer are text like any other.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Self

_TOKEN = re.compile(r"\{\{|\}\}|\{([A-Za-z_][A-Za-z0-9_]*)\}|[{}]")
_LITERAL = {"{{": "{", "}}": "}"}


@dataclass(frozen=True, slots=True)
class Place:
    """Where a value goes."""

    name: str


@dataclass(frozen=True, slots=True)
class Template:
    """A text with places: `{name}` is one, `{{` and `}}` are single braces."""

    parts: tuple[str | Place, ...]

    @classmethod
    def parse(cls, text: str) -> Self:
        """The template in `text`; raises `ValueError` that shows a brace which is neither a place nor doubled."""
        parts: list[str | Place] = []
        end = 0
        for found in _TOKEN.finditer(text):
            token = found[0]
            if len(token) == 1:
                shown = text[max(0, found.start() - 20) : found.end() + 20]
                raise ValueError(f"a brace at {found.start()} ({shown!r}) is neither {{name}} nor doubled")
            parts += [text[end : found.start()], Place(found[1]) if found[1] else _LITERAL[token]]
            end = found.end()
        return cls((*parts, text[end:]))

    @classmethod
    def load(cls, path: str | Path, *, base: Path, places: Collection[str] | None = None) -> Self:
        """The template in a file, outer white space dropped; a relative path is looked up in the folder `base`.

        Raises `ValueError` that names the file when it cannot be read, is no template, or has other places than `places`.
        """
        file = base / path
        try:
            template = cls.parse(file.read_text("utf-8").strip())
            unknown = sorted(template.names - set(places)) if places is not None else []
            if unknown:
                raise ValueError(f"nothing fills {', '.join(unknown)}; the places are: {', '.join(places or ())}")
            return template
        except (OSError, ValueError) as e:
            raise ValueError(f"prompt template {file}: {e}") from e

    @property
    def names(self) -> frozenset[str]:
        """Names of the places."""
        return frozenset(part.name for part in self.parts if isinstance(part, Place))

    def fill(self, values: Mapping[str, str]) -> str:
        """The text with every place filled; others are left out. Raises `ValueError` for a place without value."""
        missing = sorted(self.names - values.keys())
        if missing:
            raise ValueError(f"no value for {', '.join(missing)}; there are: {', '.join(sorted(values)) or 'none'}")
        return "".join(values[part.name] if isinstance(part, Place) else part for part in self.parts)
