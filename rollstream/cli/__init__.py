"""The command line: one file per command, and what they share in `common`.

Invariant: importing this package and printing help import no command, no Kafka client, no model client and no environment, so
the shell answers at once; a command's file is imported when it is asked for, and what it needs when it runs.
"""

from __future__ import annotations

import sys

import typer

from rollstream.cli.common import flowing, state
from rollstream.cli.lazily import Listed, listing

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

COMMANDS = (
    Listed("run", "Rollouts", "Rollouts from start to score, all in this process."),
    Listed("chat", "Rollouts", "Talk to an environment's agent, and see each turn, each tool call and the score."),
    Listed("serve", "Rollouts", "Environments and their agents over HTTP, as the reference serves them, without Kafka."),
    Listed("aggregate", "Results", "Results of several machines as one run: merged in order, with the metrics of one run."),
    Listed(
        "profile",
        "Results",
        "Mean, spread and rollouts of each task, beside its row: STEM_reward_profiling.jsonl and STEM_agent_metrics.json.",
    ),
    Listed(
        "view",
        "Results",
        "Stored rollouts for reading: request, turns, tool calls and their outputs, reward and the verifier's fields.",
    ),
    Listed("reverify", "Rollouts", "Score stored rollouts again, with the verifiers that are installed now."),
    Listed(
        "diff",
        "Rollouts",
        "What changed from one scoring to another: rewards, their direction, verdicts; by environment and rollout.",
    ),
    Listed("produce", "Rollouts", "Rows of FILE onto the prompts topic, checked one by one."),
    Listed(
        "tail",
        "Rollouts",
        "Scored rollouts as they come, one line each: time, environment, rollout, reward, the end of the answer.",
    ),
    Listed(
        "status",
        "Rollouts",
        "How a run stands: dispatched = scored + failed + cancelled + expired + in flight, and what waits at each stage.",
    ),
    Listed("worker", "Workers", "One stage in one process; start as many as the load asks for."),
    Listed(
        "environments",
        "About",
        "The environments that are installed here, one line each: name, what it is, what it needs beside a model.",
    ),
    Listed("config", "About", "Every setting as it is in force here, and where its value came from."),
    Listed(
        "convert", "About", "A configuration of NeMo Gym (YAML files, env.yaml, key=value words) as a settings file of ours."
    ),
    Listed("version", "About", "The versions of rollstream and of what it stands on."),
    Listed("control", "Rollouts", "Cancel, pause or resume a run, or say which version the policy has."),
    Listed("broker", "Broker", "A real Apache Kafka on this machine, without Docker or an installed Java."),
    Listed(
        "environment",
        "About",
        "Write an environment of your own: a folder that runs and is tested at once, and a check of what you made of it.",
    ),
    Listed("model", "About", "The models of the pipeline, for programs that are not of it."),
)
"""Every command, in the order of the help: the file of this package that has its name makes it."""


app = typer.Typer(
    name="rollstream",
    help=flowing(HELP),
    cls=listing(__name__, COMMANDS),
    rich_markup_mode=None,
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"]},
)


def _show_version(wanted: bool) -> None:
    from rollstream.cli import version

    version.show(wanted)


@app.callback()
def _root(
    debug: bool = typer.Option(False, "--debug", help="Show tracebacks and all log lines."),
    _version: bool = typer.Option(False, "--version", help="Show the version and exit.", callback=_show_version, is_eager=True),
) -> None:
    state.debug = debug


def main() -> None:
    """Entry point of the `rollstream` program."""
    # A model's text may hold what the terminal's encoding cannot: show it escaped instead of failing half-way.
    for stream in (sys.stdout, sys.stderr):
        if hasattr(stream, "reconfigure"):
            stream.reconfigure(errors="backslashreplace")
    app()
