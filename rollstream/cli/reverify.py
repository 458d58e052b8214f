"""`rollstream reverify`: score stored rollouts again, from files or from the log."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from rollstream.cli.common import (
    OK,
    SOME_FAILED,
    AsJson,
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
)

if TYPE_CHECKING:
    from collections.abc import Callable
    from datetime import datetime

    from rollstream.reverify.request import Report
    from rollstream.settings import Settings

_FILES, _LOG, _BOTH = "From files", "From the log", "Both"
_SHOWN = 10
_EVERY_S = 5.0
"""Between two lines of progress."""


def register(app: typer.Typer) -> None:
    add(app, reverify, "Rollouts")


def reverify(  # noqa: PLR0917 - the flags of a command
    rollouts: Annotated[
        Path | None, typer.Argument(metavar="[ROLLOUTS.jsonl]", help="Stored results, ours or NeMo Gym's.", show_default=False)
    ] = None,
    output: Annotated[
        Path | None,
        typer.Option(
            "--output", "-o", metavar="DIR/STEM.jsonl", help="The new results file; with --log, also a directory for many runs."
        ),
    ] = None,
    environment: Annotated[
        str | None,
        typer.Option(
            "--environment", "-e", metavar="NAME", help="From files: what scores every rollout. --log: only its rollouts."
        ),
    ] = None,
    force: Annotated[
        bool, typer.Option("--force", help="Even where a verifier is not stateless; names get the prefix unsafe_.")
    ] = False,
    overwrite: Annotated[bool, typer.Option("--overwrite", help="Replace output that exists.")] = False,
    resume: Annotated[bool, typer.Option("--resume", help="Go on where the same command stopped.")] = False,
    scoring: Annotated[
        str | None, typer.Option("--scoring", metavar="ID", help="A name for the new scores; without it one is made.")
    ] = None,
    concurrency: Annotated[
        int | None, typer.Option("--concurrency", "-c", min=1, help="Verifications at a time.", rich_help_panel=_BOTH)
    ] = None,
    as_json: AsJson = False,
    inputs: Annotated[
        Path | None,
        typer.Option(
            "--inputs", "-i", metavar="FILE", help="Their materialized rows; found beside ROLLOUTS.", rich_help_panel=_FILES
        ),
    ] = None,
    limit: Annotated[
        int | None,
        typer.Option("--limit", min=1, help="Only the first so many, those done before included.", rich_help_panel=_FILES),
    ] = None,
    judge_failed_only: Annotated[
        bool,
        typer.Option(
            "--judge-failed-only", help="Keep what was scored; verify what failed for its judge.", rich_help_panel=_FILES
        ),
    ] = False,
    append: Annotated[
        bool,
        typer.Option("--append", help="With --judge-failed-only: add to the existing output instead.", rich_help_panel=_FILES),
    ] = False,
    reuse_judge_calls: Annotated[
        bool,
        typer.Option("--reuse-judge-calls", help="Judges' recorded replies answer the same questions.", rich_help_panel=_FILES),
    ] = False,
    strict: Annotated[
        bool, typer.Option("--strict", help="Verify nothing when one line cannot be used.", rich_help_panel=_FILES)
    ] = False,
    disable_aggregation: Annotated[
        bool, typer.Option("--disable-aggregation", help="Compute no metrics.", rich_help_panel=_FILES)
    ] = False,
    log: Annotated[bool, typer.Option("--log", help="Replay the log's trajectories instead.", rich_help_panel=_LOG)] = False,
    run: Annotated[str | None, typer.Option("--run", metavar="ID", help="Only this run.", rich_help_panel=_LOG)] = None,
    since: Annotated[
        str | None,
        typer.Option("--since", metavar="TIME", help="Finished since, such as 2026-08-30T12:00Z.", rich_help_panel=_LOG),
    ] = None,
    until: Annotated[str | None, typer.Option("--until", metavar="TIME", help="Finished before.", rich_help_panel=_LOG)] = None,
    policy: Annotated[
        str | None,
        typer.Option("--policy", metavar="NAME", help="Only what this model said (response.model).", rich_help_panel=_LOG),
    ] = None,
    policy_version: Annotated[
        str | None,
        typer.Option("--policy-version", metavar="VERSION", help="Not possible yet: says why.", rich_help_panel=_LOG),
    ] = None,
    failure_class: Annotated[
        str | None,
        typer.Option("--failure-class", metavar="CLASS", help="Only what failed so at its verifier.", rich_help_panel=_LOG),
    ] = None,
    bootstrap_servers: BootstrapServers = None,
    prefix: Prefix = None,
    config: ConfigFile = None,
    assignments: Set = None,
) -> None:
    """Score stored rollouts again, with the verifiers that are installed now. No policy is asked.

    From files: a results file and its materialized rows become a new results file, with its own failures and metrics. What
    exists is never written over unasked. From the log (--log): a slice of the trajectories becomes a scoring of its own, in
    topics of its own, which the live pipeline does not see; --output writes it into files too. `rollstream diff` shows what
    changed.

      rollstream reverify results/rollouts.jsonl -o results/again.jsonl

      rollstream reverify --log --run night-7 --scoring stricter -o results/stricter.jsonl

    Exit code 0 when everything was scored, 3 when some rollouts failed or some lines could not be used.
    """
    existing = _existing(overwrite=overwrite, resume=resume, append=append)
    flags = {"verifier__in_flight": concurrency}
    settings = load_settings(bootstrap_servers, prefix, config, assignments, **flags).settings
    narrowing = {"--run": run, "--since": since, "--until": until, "--policy": policy, "--failure-class": failure_class}
    narrowing |= {"--policy-version": policy_version}
    file_options = {"--inputs": inputs, "--limit": limit, "--judge-failed-only": judge_failed_only, "--append": append}
    file_options |= {"--reuse-judge-calls": reuse_judge_calls, "--strict": strict, "--disable-aggregation": disable_aggregation}
    if log:
        _refuse("--log reads the log: leave out", {"ROLLOUTS": rollouts, **file_options})
        if policy_version is not None:
            raise UsageError(_NO_VERSION)
        wanted = {"run": run or "", "environment": environment or "", "model": policy or ""}
        code = _from_log(
            wanted, (since, until, failure_class), output, scoring, existing, settings, force=force, as_json=as_json
        )
        raise typer.Exit(code)
    _refuse("these belong to --log:", narrowing)
    if rollouts is None or output is None:
        raise UsageError("name the stored results and --output, or replay the log with --log")
    from rollstream.reverify.request import FilesRequest

    request = FilesRequest(
        rollouts, output, inputs, environment or "", concurrency or 0, limit or 0, force, existing, disable_aggregation,
        judge_failed_only, reuse_judge_calls, strict, scoring or "",
    )  # fmt: skip
    raise typer.Exit(_from_files(request, settings, as_json=as_json))


def _existing(*, overwrite: bool, resume: bool, append: bool) -> Any:
    from rollstream.reverify.output import Existing

    if overwrite + resume + append > 1:
        raise UsageError("--overwrite, --resume and --append exclude each other")
    return Existing.OVERWRITE if overwrite else Existing.RESUME if resume else Existing.APPEND if append else Existing.REFUSE


def _refuse(why: str, options: dict[str, Any]) -> None:
    given = [name for name, value in options.items() if value]
    if given:
        raise UsageError(f"{why} {', '.join(given)}")


def _from_files(request: Any, settings: Settings, *, as_json: bool) -> int:
    from environments.registry import Registry
    from rollstream.reverify.files import reverify_files
    from rollstream.reverify.guard import ReverifyError

    try:
        report = run_async(reverify_files(request, settings, Registry.load(), _progress()))
    except ReverifyError as e:
        raise UsageError(str(e)) from e
    _show(report, as_json=as_json)
    return SOME_FAILED if report.failed or report.problems else OK


def _show(report: Report, *, as_json: bool) -> None:
    from schemas import jsontext

    for note in (*report.warnings, *map(str, report.torn)):
        say(f"note: {note}")
    for problem in report.problems[:_SHOWN]:
        say(str(problem))
    if len(report.problems) > _SHOWN:
        say(f"and {len(report.problems) - _SHOWN:,} more lines that cannot be used")
    if as_json:
        typer.echo(jsontext.dumps(report.as_json()).decode())
        return
    rows = [
        (
            name,
            f"{t.verifier} {t.version}",
            t.scored,
            t.failed.total(),
            t.same,
            t.up,
            t.down,
            t.rewards / t.scored if t.scored else None,
        )
        for name, t in report.tallies.items()
    ]
    _table(("environment", "verifier", "scored", "failed", "same", "up", "down", "mean reward"), rows)
    extra = [f"{report.copied:,} taken over"] if report.copied else []
    extra += [f"{report.skipped:,} done before"] if report.skipped else []
    typer.echo("; ".join([f"scoring {report.scoring}", *extra]))
    for path in (report.paths.results, report.paths.failures, report.paths.aggregate, report.paths.run):
        if path.exists():
            typer.echo(str(path))


def _from_log(
    wanted: dict[str, str], edges: tuple[str | None, str | None, str | None], output: Path | None, scoring: str | None,
    existing: Any, settings: Settings, *, force: bool, as_json: bool,
) -> int:  # fmt: skip
    from environments.registry import Registry
    from rollstream.reverify.export import check_target
    from rollstream.reverify.files import new_scoring
    from rollstream.reverify.guard import ReverifyError
    from rollstream.reverify.output import Existing
    from rollstream.reverify.replay import LogRequest
    from rollstream.reverify.slice import Slice

    since, until, failure = edges
    registry = Registry.load()
    if wanted["environment"]:
        wanted = {**wanted, "environment": registry.variant_of(wanted["environment"])}
    part = Slice(**wanted, since=_time("--since", since), until=_time("--until", until), failure_class=_class(failure))
    if existing is Existing.RESUME and scoring is None:
        raise UsageError("--resume goes on with a scoring: name it with --scoring")
    request = LogRequest(scoring or new_scoring(), part, force, existing is Existing.RESUME)
    try:
        if output is not None:
            check_target(output, request, overwrite=existing is Existing.OVERWRITE)
        return run_async(_replayed(request, settings, registry, output, as_json=as_json))
    except ReverifyError as e:
        raise UsageError(str(e)) from e


async def _replayed(request: Any, settings: Settings, registry: Any, output: Path | None, *, as_json: bool) -> int:
    from rollstream.reverify.export import export
    from rollstream.reverify.replay import replay
    from rollstream.reverify.summary import summary_of
    from rollstream.runner.assembly import claims_of
    from schemas import jsontext

    connection, claims = connection_of(settings), claims_of(settings)
    try:
        done = await replay(request, settings, connection, registry, claims, _progress())
        summary = await summary_of(done, connection, claims)
        files = [] if output is None else await export(done, request, output, connection, claims, registry)
    finally:
        claims.close()
    for warning in done.warnings:
        say(f"note: {warning}")
    if as_json:
        typer.echo(jsontext.dumps({**summary.as_json(), "files": [str(p.results) for p in files]}).decode())
    else:
        _table(("environment", "verifier", "scored", "failed", "mean reward"), summary.rows())
        typer.echo(f"scoring {done.scoring}, in {', '.join(summary.topics)}")
        for paths in files:
            typer.echo(str(paths.results))
    return SOME_FAILED if summary.failed else OK


def _table(columns: tuple[str, ...], rows: Any) -> None:
    from rich.console import Console
    from rich.table import Table
    from rich.text import Text

    from rollstream.text import printable

    table = Table()
    for i, name in enumerate(columns):
        table.add_column(name, justify="left" if i < 2 else "right")  # noqa: PLR2004 - environment and verifier
    for row in rows:
        table.add_row(*(Text(printable(_cell(value))) for value in row))
    Console(highlight=False).print(table)


def _cell(value: Any) -> str:
    return (
        "-"
        if value is None
        else f"{value:,}"
        if isinstance(value, int)
        else f"{value:.3f}"
        if isinstance(value, float)
        else str(value)
    )


def _progress() -> Callable[[int, int], None]:
    """Says now and then how far it is."""
    import time

    said = time.monotonic()

    def tell(done: int, total: int) -> None:
        nonlocal said
        if time.monotonic() - said >= _EVERY_S and done < total:
            said = time.monotonic()
            say(f"{done:,} of {total:,} rollouts")

    return tell


def _time(option: str, text: str | None) -> datetime | None:
    from datetime import datetime

    if text is None:
        return None
    try:
        return datetime.fromisoformat(text).astimezone()
    except ValueError as e:
        raise UsageError(f"{option} {text}: write a time such as 2026-08-30T12:00Z") from e


def _class(text: str | None) -> Any:
    from schemas.errors import FailureClass

    if text is None:
        return None
    try:
        return FailureClass(text)
    except ValueError as e:
        raise UsageError(f"--failure-class {text}: one of {', '.join(FailureClass)}") from e


_NO_VERSION = (
    "--policy-version: the events of the log carry no policy version. Where each version is served under a name of its own, "
    "--policy NAME selects by the model that answered; where versions follow each other in time, --since and --until do"
)
