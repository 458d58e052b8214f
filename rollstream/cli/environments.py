"""`rollstream environments`: which there are, and what they need."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import typer

from rollstream.cli.common import AsJson, add

if TYPE_CHECKING:
    from environments.manifest import Manifest


def register(app: typer.Typer) -> None:
    add(app, environments, "About")


def environments(as_json: AsJson = False) -> None:
    """The environments that are installed here, one line each: name, what it is, what it needs beside a model."""
    from environments.registry import Registry
    from rollstream.text import printable

    found = [_described(entry.manifest) for entry in Registry.load().entries]
    if as_json:
        from schemas import jsontext

        typer.echo(jsontext.dumps(found))
        return
    width = max((len(e["name"]) for e in found), default=0)
    for e in found:
        needs = f"  [needs {', '.join(e['needs'])}]" if e["needs"] else ""
        typer.echo(f"{printable(e['name']):<{width}}  {printable(e['description'])}{printable(needs)}")


def _described(manifest: Manifest) -> dict[str, Any]:
    extra = (f"pip install rollstream[{manifest.extra}]",) if manifest.extra else ()
    return {
        "name": manifest.name,
        "description": " ".join(manifest.description.split()),
        "domain": manifest.domain,
        "needs": [*manifest.needs, *extra],
        "variants": {name: variant.agent.name for name, variant in manifest.variants.items()},
    }
