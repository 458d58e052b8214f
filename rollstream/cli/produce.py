"""`rollstream produce`: rows of a file onto the prompts topic of any broker."""

from __future__ import annotations

import os
import secrets
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, BinaryIO

import typer

from rollstream.cli.common import (
    OK,
    SOME_FAILED,
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
    from rollstream.producer import PromptProducer
    from rollstream.runfiles.expansion import Expansion, TaskRow
    from rollstream.runfiles.problems import RowProblem
    from rollstream.settings import Settings

_SHOWN = 20
"""Refused rows that are listed; a file of the wrong kind would else scroll everything away."""

_IN_MEMORY = 16 << 20
"""Bytes of standard input kept in memory for the second pass of --strict, before they go to a temporary file."""

STDIN = "stdin"


def register(app: typer.Typer) -> None:
    add(app, produce, "Rollouts")


@dataclass(frozen=True, slots=True)
class Request:
    """What is to be produced."""

    file: str
    run: str
    environment: str | None
    agent: str | None
    repeats: int
    limit: int
    strict: bool
    timeout_s: float | None


@dataclass(slots=True)
class Outcome:
    """What came of it."""

    rows: int = 0
    rollouts: int = 0
    refused: int = 0

    def refuse(self, problem: RowProblem) -> None:
        self.refused += 1
        if self.refused <= _SHOWN:
            say(str(problem))


def produce(  # noqa: PLR0917 - the flags of a command
    file: Annotated[str, typer.Argument(metavar="FILE|-", help="JSONL rows; - reads standard input.", show_default=False)],
    run: Annotated[
        str | None, typer.Option("--run", metavar="ID", help="The run they belong to; without it a new one, printed on stdout.")
    ] = None,
    environment: Annotated[
        str | None, typer.Option("--environment", "-e", metavar="NAME", help="For rows that name no agent.")
    ] = None,
    agent: Annotated[str | None, typer.Option("--agent", metavar="NAME", help="Likewise, by the agent's name.")] = None,
    repeats: Annotated[int, typer.Option("--repeats", "-n", min=1, help="Rollouts of each row.")] = 1,
    limit: Annotated[int, typer.Option("--limit", min=0, help="At most so many rows; 0: all.")] = 0,
    strict: Annotated[bool, typer.Option("--strict", help="Send nothing when one row is bad.")] = False,
    timeout_s: Annotated[
        float | None, typer.Option("--timeout", metavar="SECONDS", min=0.001, help="Deadline of each rollout.")
    ] = None,
    bootstrap_servers: BootstrapServers = None,
    prefix: Prefix = None,
    config: ConfigFile = None,
    assignments: Set = None,
) -> None:
    """Rows of FILE onto the prompts topic, checked one by one.

    A bad row is refused by file and line, and recorded in the failures topic; the good ones are sent. Sending a file again
    under the same --run adds no result while the partitions still know its rollouts: each knows its last 50,000, or those of
    its last 5,000 records after a restart or rebalance. Older ones are played again (docs/guarantees.md, Duplicates). Exit code
    3 when rows were refused.
    """
    from schemas.identity import SOLO, is_id

    if run is not None and not is_id(run):
        raise UsageError(f"--run {run}: a letter or digit, then letters, digits, '.', '_' or '-'; at most 200 characters")
    if run is not None and run.startswith(SOLO):
        raise UsageError(f"--run {run}: ids that begin with {SOLO} belong to `rollstream run` alone")
    settings = load_settings(bootstrap_servers, prefix, config, assignments).settings
    request = Request(file, run or new_run_id(), environment, agent, repeats, limit, strict, timeout_s)
    with _opened(request) as rows:
        outcome = run_async(_produce(settings, request, rows))
    _report(request, outcome)
    typer.echo(request.run)
    raise typer.Exit(SOME_FAILED if outcome.refused else OK)


def new_run_id() -> str:
    """A run id that sorts by time and is not taken."""
    return f"run-{datetime.now(UTC):%Y%m%d-%H%M%S}-{secrets.token_hex(2)}"


async def _produce(settings: Settings, request: Request, rows: BinaryIO) -> Outcome:
    from rollstream.producer import PromptProducer

    outcome = Outcome()
    if request.strict:
        _check_all(request, rows, outcome)
        if outcome.refused:
            return outcome
        rows.seek(0)
    async with PromptProducer(connection_of(settings), topics_of(settings)) as producer:
        with _progress(rows) as advance:
            await _send_all(producer, request, rows, outcome, advance)
    return outcome


def _check_all(request: Request, rows: BinaryIO, outcome: Outcome) -> None:
    from rollstream.runfiles.problems import RowProblem

    expansion = _expansion(request)
    for row in expansion.rows(rows, _name(request)):
        if isinstance(row, RowProblem):
            outcome.refuse(row)


async def _send_all(producer: PromptProducer, request: Request, rows: BinaryIO, outcome: Outcome, advance: Any) -> None:
    from rollstream.runfiles.problems import RowProblem
    from schemas.errors import DataError

    for row in _expansion(request).rows(rows, _name(request)):
        problem = row if isinstance(row, RowProblem) else None
        if not isinstance(row, RowProblem):
            try:
                await _send(producer, request, row)
                outcome.rows += 1
                outcome.rollouts += row.repeats
            except DataError as e:  # what only the whole event shows, such as its size
                problem = RowProblem(_name(request), row.line, str(e))
        if problem is not None:
            outcome.refuse(problem)
            await producer.refuse(request.run, problem.file, problem.line, problem.message, problem.original)
        advance()


async def _send(producer: PromptProducer, request: Request, row: TaskRow) -> None:
    await producer.send(
        row.row,
        run_id=request.run,
        task_id=f"task-{row.task_index}",
        task_index=row.task_index,
        repeats=row.repeats,
        first_rollout=row.first_rollout,
        timeout_s=request.timeout_s,
    )


def _expansion(request: Request) -> Expansion:
    from environments.registry import Registry
    from rollstream.runfiles.expansion import Expansion, Plan
    from rollstream.runfiles.problems import PlanError

    plan = Plan(environment=request.environment, agent=request.agent, repeats=request.repeats, limit=request.limit)
    try:
        return Expansion(plan, Registry.load())
    except PlanError as e:
        raise UsageError(str(e)) from e


def _name(request: Request) -> str:
    return STDIN if request.file == "-" else request.file


@contextmanager
def _opened(request: Request) -> Iterator[BinaryIO]:
    """The rows; standard input can be read twice when --strict asks for it."""
    if request.file != "-":
        with Path(request.file).open("rb") as file:
            yield file
    elif not request.strict:
        yield typer.get_binary_stream("stdin")
    else:
        with tempfile.SpooledTemporaryFile(_IN_MEMORY) as copy:
            while chunk := typer.get_binary_stream("stdin").read(1 << 20):
                copy.write(chunk)
            copy.seek(0)
            yield copy  # type: ignore[misc]  # it has all of BinaryIO that is used


@contextmanager
def _progress(rows: BinaryIO) -> Iterator[Any]:
    """A bar by bytes on stderr, when that is a terminal and the size is known."""
    size = _size(rows)
    if not sys.stderr.isatty() or not size:
        yield lambda: None
        return
    from rich.console import Console
    from rich.progress import Progress

    with Progress(console=Console(stderr=True), transient=True) as bar:
        task = bar.add_task("sending", total=size)
        yield lambda: bar.update(task, completed=rows.tell())


def _size(rows: BinaryIO) -> int:
    try:
        return os.fstat(rows.fileno()).st_size if rows.seekable() else 0
    except (OSError, AttributeError):
        return 0


def _report(request: Request, outcome: Outcome) -> None:
    if outcome.refused > _SHOWN:
        say(f"… and {outcome.refused - _SHOWN:,} more")
    if request.strict and outcome.refused:
        say(f"{outcome.refused:,} rows refused; nothing was sent")
    else:
        refused = f"; {outcome.refused:,} rows refused" if outcome.refused else ""
        say(f"sent {outcome.rows:,} rows ({outcome.rollouts:,} rollouts) as run {request.run}{refused}")
