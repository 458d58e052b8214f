"""`rollstream chat`: one rollout at a time, at the terminal, without Kafka."""

from __future__ import annotations

import signal
import sys
from typing import TYPE_CHECKING, Annotated

import typer

from rollstream.cli.common import OK, SOME_FAILED, ConfigFile, Set, UsageError, add, load_settings, quiet_logs

if TYPE_CHECKING:
    from collections.abc import Iterator

    from environments.discovery import Entry
    from rollstream.chat.talk import Talk


def register(app: typer.Typer) -> None:
    add(app, chat, "Rollouts")


def chat(
    environment: Annotated[str, typer.Option("--environment", "-e", metavar="NAME", help="Whose agent to talk to.")],
    task: Annotated[int | None, typer.Option("--task", "-t", min=0, help="Run this example task, from 0, and end.")] = None,
    text: Annotated[str | None, typer.Option("--text", help="Say this to the agent, and end.")] = None,
    model: Annotated[
        str | None, typer.Option("--model", "-m", metavar="URL/NAME", help="The policy; or scripted (no model at all).")
    ] = None,
    config: ConfigFile = None,
    assignments: Set = None,
) -> None:
    """Talk to an environment's agent, and see each turn, each tool call and the score.

    At the prompt, a number runs that example task and any other text talks to the agent; /tasks lists the tasks, /new begins a
    new conversation, /quit or the end of the input ends. Ctrl-C stops what runs; at the prompt it ends. Lines may be piped in.

      rollstream chat --environment example_single_tool_call --model scripted --task 0

    Exit code 3 when something ended without a score that should have had one.
    """
    from rich.console import Console

    from environments.registry import Registry
    from rollstream.chat.loop import ChatLoop
    from rollstream.chat.screen import Screen
    from rollstream.chat.talk import Talk
    from rollstream.cli.run import _model

    if task is not None and text is not None:
        raise UsageError("either --task or --text")
    registry = Registry.load()
    binding, entry = registry.binding(registry.variant_of(environment), None), registry.entry_of(environment)
    settings = load_settings(config=config, assignments=assignments, **(_model(model) if model is not None else {})).settings
    quiet_logs()
    signal.signal(signal.SIGTERM, signal.default_int_handler)
    with ChatLoop(settings) as loop:
        screen = Screen(Console(highlight=False))
        talk = Talk(loop.services, binding, _rows(entry), screen, loop.wait)
        try:
            if task is not None:
                talk.task(task)
            elif text is not None:
                talk.say(text)
            else:
                _converse(talk)
        finally:
            talk.end()
    raise typer.Exit(SOME_FAILED if talk.failed else OK)


def _rows(entry: Entry) -> list[dict[str, object]]:
    """The example tasks; raises `DataError` that names a bad line."""
    from schemas.errors import DataError
    from schemas.rows import parse_row

    path = entry.folder / "data" / "example.jsonl"
    found = []
    for number, line in enumerate(path.read_bytes().splitlines() if path.is_file() else (), 1):
        try:
            found.append(parse_row(line))
        except DataError as e:
            raise DataError(f"{path}:{number}: {e}") from e
    return found


def _converse(talk: Talk) -> None:
    from rollstream.chat.talk import HELP

    talk.screen.note(f"{talk.binding.name}, {len(talk.rows)} tasks: {HELP}")
    for line in _lines():
        try:
            if not talk.line(line):
                return
        except KeyboardInterrupt:
            talk.screen.note("stopped")
            talk.failed += 1


def _lines() -> Iterator[str]:
    """Lines from the terminal, or from whatever is piped in, to its end."""
    prompt = "> " if sys.stdin.isatty() else ""
    while True:
        try:
            yield input(prompt)
        except EOFError:
            return
