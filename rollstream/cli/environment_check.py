"""`rollstream environment check`: what an environment must be, and whether it is."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, Annotated

import typer

from rollstream.cli.common import OK, SOME_FAILED, AsJson, ConfigFile, Set, UsageError, load_settings, quiet_logs

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from environments.registry import Registry
    from rollstream.checking.bench import Bench
    from rollstream.checking.findings import Findings

_HANG_S = 180
"""For all checks of one environment; those of the slowest here take fifteen."""

_COLOURS = {"passed": "green", "failed": "bold red", "skipped": "dim"}


def check(
    names: Annotated[list[str] | None, typer.Argument(metavar="NAME…", help="Environments.", show_default=False)] = None,
    everything: Annotated[bool, typer.Option("--all", help="All that are installed here.")] = False,
    update_expected: Annotated[
        bool, typer.Option("--update-expected", help="Write the rewards of now into data/fixtures.jsonl, then check.")
    ] = False,
    config: ConfigFile = None,
    assignments: Set = None,
    as_json: AsJson = False,
) -> None:
    """Check an environment: described, tried on its examples, the same twice, quick on a megabyte.

    It runs here, without a broker; model and judge are scripts, programs run in this machine's sandbox. The checks: manifest,
    packages of its extra, variants, README, tools, examples, whole rollouts, determinism, state, time, and the cases of
    data/fixtures.jsonl where there are any. Exit code 3 when a check failed.
    """
    from environments.registry import Registry
    from rollstream.checking.bench import Bench

    registry = Registry.load()
    chosen = _every(registry) if everything else names or []
    if not chosen:
        raise UsageError("name an environment, or give --all")
    unknown = [name for name in chosen if name not in _every(registry)]
    if unknown:
        raise UsageError(f"{unknown[0]}: {_why_unknown(registry, unknown[0])}")
    quiet_logs()
    with Bench(load_settings(config=config, assignments=assignments).settings) as bench:
        reports = []
        for report in _reports(registry, chosen, bench, update_expected=update_expected):
            reports.append(report)
            if not as_json:
                _show(report)
    if as_json:
        _print_json(reports)
    raise typer.Exit(SOME_FAILED if any(r.failed for r in reports) else OK)


def _every(registry: Registry) -> list[str]:
    return [e.manifest.name for e in registry.entries] + [b.name for b in registry.broken]


def _why_unknown(registry: Registry, name: str) -> str:
    """What to say to a name that is no environment's: it may be a variant's, or misspelt."""
    from schemas.errors import DataError

    try:
        return f"that is a variant of {registry.entry_of(name).manifest.name}, which is checked with all its variants"
    except DataError as e:
        return str(e)


def _reports(registry: Registry, names: Iterable[str], bench: Bench, *, update_expected: bool) -> Iterator[Findings]:
    import faulthandler

    for name in names:
        # A pattern that backtracks holds the interpreter: only a watch in C still runs then, says where it is, and ends us.
        faulthandler.dump_traceback_later(_HANG_S, exit=True, file=sys.__stderr__ or sys.stderr)
        try:
            yield _checked(registry, name, bench, update_expected=update_expected)
        finally:
            faulthandler.cancel_dump_traceback_later()


def _checked(registry: Registry, name: str, bench: Bench, *, update_expected: bool) -> Findings:
    from rollstream.checking.checks import check as check_all
    from rollstream.checking.checks import unusable
    from rollstream.checking.fixtures import path_of, update
    from rollstream.checking.subject import Subject

    broken = next((b for b in registry.broken if b.name == name), None)
    if broken is not None:
        return unusable(broken)
    subject = Subject(registry.entry_of(name), registry, bench)
    if update_expected:
        if not path_of(subject).is_file():
            raise UsageError(f"{path_of(subject)} is not there: --update-expected has nothing to update")
        typer.echo(f"{update(subject)} of the fixtures have changed", err=True)
    return check_all(subject)


def _show(report: Findings) -> None:
    from rich.console import Console
    from rich.table import Table
    from rich.text import Text

    from rollstream.text import printable

    table = Table(title=Text(printable(report.environment)), title_justify="left")
    table.add_column("check", no_wrap=True)
    table.add_column("result", no_wrap=True)
    table.add_column("", overflow="fold")
    for finding in report:
        detail = Text("\n".join(printable(line) for line in finding.detail.splitlines()))
        table.add_row(finding.check, Text(finding.result.value, _COLOURS[finding.result.value]), detail)
    Console(markup=False, highlight=False, emoji=False).print(table)


def _print_json(reports: Iterable[Findings]) -> None:
    from schemas import jsontext

    found = [
        {
            "environment": r.environment,
            "failed": r.failed,
            "checks": [{"check": f.check, "result": f.result.value, "detail": f.detail} for f in r],
        }
        for r in reports
    ]
    typer.echo(jsontext.dumps(found))
