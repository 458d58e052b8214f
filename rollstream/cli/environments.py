"""`rollstream environments`: which there are, what they need, and what of it is missing."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Any

import typer

from rollstream.cli.common import AsJson, add, say

if TYPE_CHECKING:
    from environments.discovery import Entry
    from environments.extras import Extras


def register(app: typer.Typer) -> None:
    add(app, environments, "About")


def environments(
    domain: Annotated[str | None, typer.Option("--domain", metavar="NAME", help="Only those of a domain.")] = None,
    markdown: Annotated[bool, typer.Option("--markdown", help="A Markdown table for a document.")] = False,
    as_json: AsJson = False,
) -> None:
    """The environments that are installed here, one line each: name, what it is, what it needs beside a model.

    Those of other packages are among them. What cannot be used is said on stderr, with the reason: a package that is missing
    with the command that installs it.
    """
    from environments.discovery import discover
    from environments.extras import Extras

    entries, broken = discover()
    entries = sorted((e for e in entries if domain in (None, e.manifest.domain)), key=lambda e: e.manifest.name)
    extras = Extras()
    found = [_described(e, extras) for e in entries]
    for name, why in [*((b.name, b.error) for b in broken), *((e["name"], e["missing"]) for e in found if e["missing"])]:
        say(f"not usable: {name}: {why}")
    if as_json:
        from schemas import jsontext

        typer.echo(jsontext.dumps(found))
    elif markdown:
        from rollstream.catalogue import one_by_one

        typer.echo(one_by_one(entries), nl=False)
    else:
        _print(found)


def _print(found: list[dict[str, Any]]) -> None:
    from rollstream.text import printable

    width = max((len(e["name"]) for e in found), default=0)
    for e in found:
        needs = f"  [needs {', '.join(e['needs'])}]" if e["needs"] else ""
        typer.echo(f"{printable(e['name']):<{width}}  {printable(e['description'])}{printable(needs)}")


def _described(entry: Entry, extras: Extras) -> dict[str, Any]:
    from environments.extras import install_command

    manifest = entry.manifest
    extra = (install_command(entry.distribution, manifest.extra),) if manifest.extra else ()
    return {
        "name": manifest.name,
        "description": " ".join(manifest.description.split()),
        "domain": manifest.domain,
        "package": entry.distribution,
        "needs": [*manifest.needs, *extra],
        "missing": extras.lacking(entry.distribution, manifest.extra),
        "variants": {name: variant.agent.name for name, variant in manifest.variants.items()},
    }
