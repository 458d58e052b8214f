"""Commands that are listed without being imported.

Owns the way from a command's name to its file. Invariant: help of the whole program imports no command; a command is made when
it is first looked up, by the `register` of the module with its name.
"""

from __future__ import annotations

import importlib
from collections.abc import ItemsView, Sequence, ValuesView
from dataclasses import dataclass
from typing import Any

import typer

from rollstream.cli.common import Sections


@dataclass(frozen=True, slots=True)
class Listed:
    """What the program's help says of a command: its name, the panel it stands under, and its help's first sentence."""

    name: str
    panel: str
    says: str


class Commands(dict[str, Any]):
    """Commands by name; one that is only listed is None until it is asked for, in any of the ways here."""

    def __init__(self, package: str, listed: Sequence[Listed]) -> None:
        super().__init__(dict.fromkeys(each.name for each in listed))
        self._package = package

    def __getitem__(self, name: str) -> Any:
        found = super().__getitem__(name)
        if found is None:
            found = self[name] = _made(f"{self._package}.{name}", name)
        return found

    def get(self, name: str, default: Any = None) -> Any:
        try:
            return self[name]
        except KeyError:
            return default

    def values(self) -> ValuesView[Any]:  # type: ignore[override]  # a view, which is all that anybody asks for
        return self._all().values()

    def items(self) -> ItemsView[str, Any]:  # type: ignore[override]
        return self._all().items()

    def _all(self) -> dict[str, Any]:
        return {name: self[name] for name in self}


def listing(package: str, listed: Sequence[Listed]) -> type[Sections]:
    """The group of a program whose commands are those `listed`, each in the module of `package` that has its name."""

    class Listing(Sections):
        def __init__(self, **given: Any) -> None:
            super().__init__(**given)
            self.commands = Commands(package, listed)

        def rows(self, ctx: Any) -> list[tuple[str, str, str]]:  # noqa: ARG002 - what is listed is listed everywhere
            return [(each.panel, each.name, each.says) for each in listed]

    return Listing


def _made(module: str, name: str) -> Any:
    app = typer.Typer(rich_markup_mode=None)
    app.callback()(_nothing)  # with it the app is a group even of one command
    importlib.import_module(module).register(app)
    group: Any = typer.main.get_command(app)
    return group.commands[name]


def _nothing() -> None:
    """Stands for the program's own options."""
