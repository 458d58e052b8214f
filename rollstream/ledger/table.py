"""The ledger for a terminal.

Invariant: names in it come from rows, so they are shown as text, never read as markup.
"""

from __future__ import annotations

from rich.console import Group, RenderableType
from rich.table import Table
from rich.text import Text

from rollstream.ledger.ledger import Counts, Ledger, time_of
from rollstream.text import printable

_COLUMNS = ("dispatched", "scored", "failed", "cancelled", "expired", "in_flight")


def ledger_table(ledger: Ledger) -> RenderableType:
    """Counts by environment, failures by class, the balance, and what speaks against it."""
    parts: list[RenderableType] = [_counts_table(ledger)]
    if ledger.by_class:
        parts.append(Text("failures by class: " + _listed(ledger.by_class)))
    if ledger.beside:
        parts.append(Text("beside, not counted: " + _listed(ledger.beside)))
    if ledger.oldest:
        since = f"{time_of(ledger.oldest.since_ms):%Y-%m-%d %H:%M:%S} UTC"
        age = max(0, ledger.taken_ms - ledger.oldest.since_ms) / 1000
        parts.append(Text(f"oldest in flight: prompt {printable(ledger.oldest.prompt)}, since {since} ({age:,.0f} s)"))
    parts.append(Text("ledger: " + ledger.equation(), style="green" if ledger.balanced else "bold red"))
    parts += [Text(printable(line), style="red") for line in ledger.complaints()]
    return Group(*parts)


def _counts_table(ledger: Ledger) -> Table:
    table = Table(title=None if ledger.run is None else Text(f"run {printable(ledger.run)}"), title_justify="left")
    table.add_column("environment", overflow="fold")
    for name in _COLUMNS:
        table.add_column(name.replace("_", " "), justify="right")
    for environment, counts in ledger.by_environment.items():
        table.add_row(Text(printable(environment)), *_cells(counts))
    if len(ledger.by_environment) != 1:
        table.add_section()
        table.add_row(Text("all", style="bold"), *_cells(ledger.total))
    return table


def _cells(counts: Counts) -> list[str]:
    return [f"{getattr(counts, name):,}" for name in _COLUMNS]


def _listed(numbers: object) -> str:
    pairs = dict(numbers)  # type: ignore[call-overload]  # a mapping of counts
    return ", ".join(f"{printable(str(k))} {v:,}" for k, v in pairs.items())
