"""`rollstream environment new|check`: for those who write environments."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from rollstream.cli.common import UsageError, add, flowing, say
from rollstream.cli.environment_check import check
from rollstream.cli.environment_fetch import fetch

if TYPE_CHECKING:
    from collections.abc import Iterable

HELP = """Write an environment of your own: a folder that runs and is tested at once, and a check of what you made of it.

docs/environments.md leads from nothing to a scored rollout.
"""

app = typer.Typer(help=flowing(HELP), no_args_is_help=True, rich_markup_mode=None)


def register(root: typer.Typer) -> None:
    root.add_typer(app, name="environment", rich_help_panel="About")


def new(
    name: Annotated[str, typer.Argument(metavar="NAME", help="Lower-case words joined by underscores.", show_default=False)],
    kind: Annotated[str, typer.Option("--kind", "-k", metavar="KIND", help="What it is like (below).")] = "score",
    package: Annotated[
        Path | None,
        typer.Option("--package", metavar="DIR", help="Make a package of its own in DIR instead of a folder of this project."),
    ] = None,
    force: Annotated[bool, typer.Option("--force", help="Replace files that are there.")] = False,
) -> None:
    """A folder with a small environment that works, its tests and five tasks: change it into yours."""
    from rollstream.scaffold.files import check_unused, checked_name, files_inside, files_outside
    from rollstream.scaffold.kinds import KINDS
    from rollstream.scaffold.writing import checkout, write

    if kind not in KINDS:
        raise UsageError(f"--kind {kind}: there are {', '.join(KINDS)}")
    root = None if package is not None else checkout(Path.cwd())
    try:
        files = files_inside(checked_name(name), kind) if root else files_outside(checked_name(name), kind)
        if not force:
            checked_name(name, _taken())
            check_unused(name)
        folder = root or package or Path(name)
        written = write(folder, files, force=force)
    except (ValueError, FileExistsError) as e:
        raise UsageError(str(e)) from e
    for path in written:
        typer.echo(path)
    say("\n".join(_next_steps(name, folder, inside=root is not None)))


def _taken() -> set[str]:
    """Every name that an environment here answers to, broken ones included."""
    from environments.discovery import discover, names_of

    entries, broken = discover()
    return {n for e in entries for n in names_of(e.manifest)} | {b.name for b in broken}


def _next_steps(name: str, folder: Path, *, inside: bool) -> Iterable[str]:
    tests = f"tests/unit/environments/test_{name}.py" if inside else str(folder / "tests")
    yield "next:"
    if not inside:
        yield f"  pip install -e {folder}        # so that it is found; in a uv project: uv pip install -e {folder}"
    yield f"  pytest {tests}"
    yield f"  rollstream environment check {name}"
    yield f"  rollstream run --environment {name} --model scripted"


def _with_kinds() -> None:
    """The kinds are listed in the help from where they are defined."""
    from rollstream.scaffold.kinds import KINDS

    width = max(map(len, KINDS))
    listed = "\n".join(f"  {kind:<{width}}  {what}" for kind, what in KINDS.items())
    new.__doc__ = f"{new.__doc__}\n\nKinds:\n\n{listed}\n"


_with_kinds()
add(app, new)
add(app, check)
add(app, fetch)
