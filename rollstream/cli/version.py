"""`rollstream version`."""

from __future__ import annotations

import typer

from rollstream.cli.common import AsJson, add


def register(app: typer.Typer) -> None:
    add(app, version, "About")


def version(as_json: AsJson = False) -> None:
    """The versions of rollstream and of what it stands on."""
    found = versions()
    if as_json:
        import json

        typer.echo(json.dumps(found))
        return
    for name, number in found.items():
        typer.echo(f"{name} {number}")


def versions() -> dict[str, str]:
    """Versions by name."""
    import platform
    from importlib import metadata

    packages = ("rollstream", "aiokafka", "faststream", "pydantic", "openai")
    return {**{p: metadata.version(p) for p in packages}, "python": platform.python_version()}


def show(wanted: bool) -> None:
    """Callback of `--version`."""
    if wanted:
        from importlib import metadata

        typer.echo(f"rollstream {metadata.version('rollstream')}")
        raise typer.Exit
