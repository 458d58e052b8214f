"""What a configuration can be refused for, and what is said about the rest of it."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from enum import StrEnum

from rollstream.settings import SettingsError


class ConfigurationError(SettingsError):
    """A configuration that cannot be used; one line for each reason, with the key, the file and what to do."""

    @classmethod
    def of(cls, lines: Iterable[str]) -> ConfigurationError:
        """One error of several reasons."""
        return cls("\n".join(lines))


class Level(StrEnum):
    """What becomes of a key: an error stops everything, an ignored one changes nothing, a note only explains."""

    ERROR = "error"
    IGNORED = "ignored"
    NOTE = "note"


@dataclass(frozen=True, slots=True)
class Remark:
    """What is said about a key: the dotted key, the file (or command line) that set it, and why."""

    level: Level
    key: str
    source: str
    text: str

    def __str__(self) -> str:
        return f"{self.key} ({self.source}): {self.text}"
