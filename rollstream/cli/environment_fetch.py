"""`rollstream environment fetch`: the data that an environment needs and this project does not bring."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from rollstream.cli.common import ConfigFile, Set, UsageError, load_settings, say

if TYPE_CHECKING:
    from environments.manifest import Manifest


def fetch(
    name: Annotated[str, typer.Argument(metavar="NAME", help="An environment.", show_default=False)],
    repo: Annotated[str | None, typer.Option("--repo", metavar="OWNER/NAME", help="Another data set on the Hub.")] = None,
    revision: Annotated[str | None, typer.Option("--revision", metavar="REV", help="Branch, tag or commit.")] = None,
    to: Annotated[
        Path | None, typer.Option("--to", metavar="DIR", help="Folder for the files; by default where the workers look.")
    ] = None,
    endpoint: Annotated[
        str | None, typer.Option("--endpoint", metavar="URL", help="A server that speaks the Hub's API.")
    ] = None,
    config: ConfigFile = None,
    assignments: Set = None,
) -> None:
    """Fetch the data of an environment from the Hugging Face Hub.

    The files go into the folder of the setting environments.data_dir, where workers on this machine find them. Files that are
    there already are replaced, but only when all have been fetched and their checksums are right.
    """
    from environments.common.extras import require
    from rollstream.hub import Source, fetch

    manifest = _manifest(name)
    if manifest.data is None:
        raise UsageError(f"the environment {manifest.name} needs no data from the Hub")
    require(manifest.extra or manifest.name, "huggingface_hub")
    folder = to or load_settings(config=config, assignments=assignments).settings.environments.folder / manifest.name
    source = Source(repo or manifest.data.repo, revision or manifest.data.revision, endpoint)
    for path in fetch(manifest.data, source, folder.expanduser().absolute(), say):
        typer.echo(path)


def _manifest(name: str) -> Manifest:
    from environments.registry import Registry
    from schemas.errors import DataError

    registry = Registry.load()
    try:
        return registry.entry_of(name).manifest
    except DataError as e:
        raise UsageError(str(e)) from e
