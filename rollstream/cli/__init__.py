"""The command line: one file per command, and what they share in `common`.

Invariant: importing this package and printing help import no Kafka client, no model client and no environment, so the shell
answers at once; every command imports what it needs when it runs.
"""

from __future__ import annotations

import sys

import typer

from rollstream.cli import (
    aggregate,
    broker,
    chat,
    config,
    control,
    convert,
    diff,
    environment,
    environments,
    model,
    produce,
    profile,
    reverify,
    run,
    serve,
    status,
    tail,
    version,
    view,
    worker,
)
from rollstream.cli.common import Sections, flowing, state

HELP = """Rollouts for reinforcement learning, as a pipeline on Apache Kafka.

Prompts go in, a policy model answers, tools are called, a verifier scores, a trainer reads. Every step is an event in the
log: whatever is killed, nothing is lost and nothing counts twice.

To try it:

  rollstream run --environment mcqa --model scripted

To use it, with workers and a broker of your own:

  rollstream produce rows.jsonl --environment mcqa --run night-7
  rollstream status --run night-7
  rollstream tail --run night-7

Settings come from flags, then environment variables (ROLLSTREAM_MODEL__URL), then rollstream.toml, then defaults;
`rollstream config` shows the outcome. `rollstream COMMAND --help` says more about a command.

Exit codes: 0 done, all scored; 1 could not do it; 2 usage; 3 some rows or rollouts failed; 130 stopped.
"""

app = typer.Typer(
    name="rollstream",
    help=flowing(HELP),
    cls=Sections,
    rich_markup_mode=None,
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"]},
)


@app.callback()
def _root(
    debug: bool = typer.Option(False, "--debug", help="Show tracebacks and all log lines."),
    _version: bool = typer.Option(False, "--version", help="Show the version and exit.", callback=version.show, is_eager=True),
) -> None:
    state.debug = debug


for _command in (
    run,
    chat,
    serve,
    aggregate,
    profile,
    view,
    reverify,
    diff,
    produce,
    tail,
    status,
    control,
    worker,
    broker,
    environments,
    environment,
    model,
    config,
    convert,
    version,
):
    _command.register(app)


def main() -> None:
    """Entry point of the `rollstream` program."""
    # A model's text may hold what the terminal's encoding cannot: show it escaped instead of failing half-way.
    for stream in (sys.stdout, sys.stderr):
        if hasattr(stream, "reconfigure"):
            stream.reconfigure(errors="backslashreplace")
    app()
