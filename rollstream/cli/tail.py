"""`rollstream tail`: scored rollouts as they come."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import TYPE_CHECKING, Annotated, Any, Literal

import typer

from rollstream.cli.common import (
    BootstrapServers,
    ConfigFile,
    Prefix,
    Set,
    UsageError,
    add,
    connection_of,
    load_settings,
    run_async,
    say,
    topics_of,
)

if TYPE_CHECKING:
    from rollstream.scored import ScoredRollout
    from rollstream.trainer import ScoredRollouts

_ENDS: dict[str, Literal["earliest", "latest"]] = {"earliest": "earliest", "latest": "latest"}

_TEXT = 80
"""Characters of an answer that are shown: with the rest, a line of a wide terminal."""


def register(app: typer.Typer) -> None:
    add(app, tail, "Rollouts")


def tail(
    run: Annotated[str | None, typer.Option("--run", metavar="ID", help="Only this run.")] = None,
    start: Annotated[
        str, typer.Option("--from", metavar="earliest|latest|TIME", help="Where to begin; a TIME such as 2026-08-30T12:00Z.")
    ] = "latest",
    limit: Annotated[int, typer.Option("--limit", min=0, help="Stop after so many; 0: never.")] = 0,
    as_json: Annotated[bool, typer.Option("--json", help="The rollout's whole line, as the sink writes it.")] = False,
    bootstrap_servers: BootstrapServers = None,
    prefix: Prefix = None,
    config: ConfigFile = None,
    assignments: Set = None,
) -> None:
    """Scored rollouts as they come, one line each: time, environment, rollout, reward, the end of the answer.

    Reads what is committed, belongs to no consumer group and moves no offset. Ctrl-C ends it.
    """
    begin = parse_start(start)
    settings = load_settings(bootstrap_servers, prefix, config, assignments).settings
    from rollstream.trainer import ScoredRollouts

    stream = ScoredRollouts(
        connection_of(settings), topics_of(settings), run=run, start=begin, claims_url=settings.claims.location
    )
    run_async(_follow(stream, limit, as_json))


def parse_start(text: str) -> Literal["earliest", "latest"] | datetime:
    """Where `--from` says to begin; a time without a zone is one of this machine. Raises `UsageError`."""
    if text in _ENDS:
        return _ENDS[text]
    try:
        return datetime.fromisoformat(text).astimezone()
    except ValueError as e:
        raise UsageError(f"--from {text}: write earliest, latest or a time such as 2026-08-30T12:00Z") from e


async def _follow(stream: ScoredRollouts, limit: int, as_json: bool) -> None:
    from schemas.errors import DataError

    shown = 0
    async with stream:
        while not limit or shown < limit:
            try:
                rollout = await stream.next()
            except DataError as e:
                say(str(e))
                continue
            if rollout is not None:
                _write(rollout, as_json)
                shown += 1


def _write(rollout: ScoredRollout, as_json: bool) -> None:
    if as_json:
        out = typer.get_binary_stream("stdout")
        out.write(rollout.line.replace(b"\n", b" ") + b"\n")
        out.flush()
    else:
        typer.echo(one_line(rollout))


def one_line(rollout: ScoredRollout) -> str:
    """A rollout for the terminal."""
    from rollstream.text import printable

    when = datetime.fromtimestamp(rollout.timestamp_ms / 1000, UTC).astimezone()
    name = f"{rollout.run_id}/{rollout.rollout_id}"
    said = printable(answer(rollout.response), _TEXT)
    return f"{when:%H:%M:%S}  {printable(rollout.environment)}  {printable(name)}  {rollout.reward:g}  {said}".rstrip()


def answer(response: dict[str, Any]) -> str:
    """The last text that the model said, on one line; empty when it said none."""
    output = response.get("output")
    for item in reversed(output if isinstance(output, list) else []):
        content = item.get("content") if isinstance(item, dict) and item.get("role", "assistant") == "assistant" else None
        if isinstance(content, str):
            return " ".join(content.split())
        texts = [
            str(p["text"]) for p in content or [] if isinstance(p, dict) and p.get("type") == "output_text" and "text" in p
        ]
        if texts:
            return " ".join(" ".join(texts).split())
    return ""
