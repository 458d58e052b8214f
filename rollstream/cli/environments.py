"""`rollstream environments`: which there are, and what they need."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import typer

from rollstream.cli.common import AsJson, add, say

if TYPE_CHECKING:
    from environments.manifest import Manifest


def register(app: typer.Typer) -> None:
    add(app, environments, "About")


def environments(as_json: AsJson = False) -> None:
    """The environments that are installed here, one line each: name, what it is, what it needs beside a model."""
    from environments.discovery import discover
    from rollstream.text import printable

    entries, broken = discover()
    found = [_described(m) for m in sorted((e.manifest for e in entries), key=lambda m: m.name)]
    for b in broken:
        say(f"not usable: {b.name}: {b.error}")
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
