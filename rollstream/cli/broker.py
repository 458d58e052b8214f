"""`rollstream broker start|stop|status`: the local broker on its own."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Any

import typer

from rollstream.cli.common import CANNOT, AsJson, ConfigFile, Set, add, flowing, load_settings, quiet_logs, say

if TYPE_CHECKING:
    from pathlib import Path

    from rollstream.broker import BrokerInfo

HELP = """A real Apache Kafka on this machine, without Docker or an installed Java. Its data outlive it.

Where it keeps them is the setting broker.data_dir. What it runs on can be named by variables: ROLLSTREAM_JAVA (a java
executable), ROLLSTREAM_KAFKA_HOME (an unpacked Kafka), ROLLSTREAM_CACHE_DIR, ROLLSTREAM_MAVEN_REPOSITORY (a mirror).
"""

app = typer.Typer(help=flowing(HELP), no_args_is_help=True, rich_markup_mode=None)


def register(root: typer.Typer) -> None:
    root.add_typer(app, name="broker", rich_help_panel="Broker")


def start(config: ConfigFile = None, assignments: Set = None, as_json: AsJson = False) -> None:
    """Start the local broker and leave it running. The first time, Kafka is fetched (about 45 MB)."""
    from rollstream.broker import BrokerBusyError, find_running, start_detached

    quiet_logs()
    folder = _folder(config, assignments)
    try:
        info = start_detached(folder, report=say)
    except BrokerBusyError:
        running = find_running(folder)
        if running is None:
            raise
        say("the local broker runs already")
        info = running
    _show(info, as_json)


def stop(config: ConfigFile = None, assignments: Set = None) -> None:
    """Stop the local broker. Its data stay."""
    from rollstream.broker import stop as stop_broker

    info = stop_broker(_folder(config, assignments))
    say(
        "no local broker runs"
        if info is None
        else f"stopped the local broker at {info.bootstrap_servers} (data kept in {info.data_dir})"
    )


def status(config: ConfigFile = None, assignments: Set = None, as_json: AsJson = False) -> None:
    """Whether the local broker runs, and where. Exit code 1 when it does not."""
    from rollstream.broker import status as broker_status

    info = broker_status(_folder(config, assignments))
    if info is None:
        if as_json:
            typer.echo('{"running":false}')
        else:
            say("no local broker runs")
        raise typer.Exit(CANNOT)
    _show(info, as_json)


for _function in (start, stop, status):
    add(app, _function)


def _folder(config: Path | None, assignments: list[str] | None) -> Path | None:
    return load_settings(config=config, assignments=assignments).settings.broker.data_dir


def _show(info: BrokerInfo, as_json: bool) -> None:
    fields: dict[str, Any] = {
        "running": True,
        "bootstrap_servers": info.bootstrap_servers,
        "pid": info.pid,
        "up_s": round(time.time() - info.started_at, 1),
        "data_dir": str(info.data_dir),
        "log": str(info.log),
        "detached": info.detached,
    }
    if as_json:
        from schemas import jsontext

        typer.echo(jsontext.dumps(fields))
        return
    for name, value in fields.items():
        typer.echo(f"{name.replace('_', ' '):<18} {value}")
