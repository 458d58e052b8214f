"""`rollstream config`: what the settings are, and where each came from."""

from __future__ import annotations

from typing import Any

import typer

from rollstream.cli.common import AsJson, BootstrapServers, ConfigFile, Prefix, Set, add, load_settings


def register(app: typer.Typer) -> None:
    add(app, config, "About")


def config(
    bootstrap_servers: BootstrapServers = None,
    prefix: Prefix = None,
    config: ConfigFile = None,
    assignments: Set = None,
    as_json: AsJson = False,
) -> None:
    """Every setting as it is in force here, and where its value came from.

    Flags win over environment variables, those over the file, and the file over the defaults. The variable of model.url
    is ROLLSTREAM_MODEL__URL; in rollstream.toml it is url under [model]. Secrets are masked.
    """
    from rollstream.settings.load import leaves
    from rollstream.settings.mask import masked

    loaded = load_settings(bootstrap_servers, prefix, config, assignments)
    rows = [(key, _plain(masked(key, value)), loaded.origins[key]) for key, value in leaves(loaded.settings)]
    if as_json:
        from schemas import jsontext

        typer.echo(jsontext.dumps({key: {"value": value, "origin": origin} for key, value, origin in rows}))
        return
    _print(rows)


def _plain(value: Any) -> Any:
    return value if value is None or isinstance(value, bool | int | float) else str(value)


def _print(rows: list[tuple[str, Any, str]]) -> None:
    from rollstream.text import printable

    shown = [(key, "–" if value is None else printable(str(value)), printable(origin)) for key, value, origin in rows]
    widths = [max(len(row[i]) for row in shown) for i in range(2)]
    for key, value, origin in shown:
        typer.echo(f"{key:<{widths[0]}}  {value:<{widths[1]}}  {origin}".rstrip())
