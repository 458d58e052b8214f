"""What commands that end with results say of them."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Mapping

    from rollstream.runfiles.aggregate import Aggregated

_SHOWN = 3


def show_agents(found: Aggregated, refused: Mapping[str, int] | None = None) -> None:
    """A table by environment, and which averages are over less than there is; `refused` rows, by agent, are failures in it."""
    from rich.console import Console

    from environments.registry import Registry
    from rollstream.runner.display import results_table
    from rollstream.text import printable

    console = Console(highlight=False)
    names = {v.agent.name: e.manifest.name for e in Registry.load().entries for v in e.manifest.variants.values()}
    console.print(results_table(found.agents, names, refused or {}))
    for agent in found.agents:
        shifted = agent["completeness"]["shifted"]
        if shifted:
            more = f" and {len(shifted) - _SHOWN} more" if len(shifted) > _SHOWN else ""
            text = f"{agent['agent_ref']['name']}: over fewer than all rollouts or tasks: {', '.join(shifted[:_SHOWN])}{more}"
            console.print(printable(text), markup=False, soft_wrap=True)
        for note in agent.get("notes", ()):
            console.print(printable(f"{agent['agent_ref']['name']}: {note}"), markup=False, soft_wrap=True)


def too_incomplete(found: Aggregated, percent: float) -> str | None:
    """What to say when fewer than `percent` of the rollouts asked for have a result; None when there are enough."""
    if not percent:
        return None
    if found.expected is None:
        return "how many rollouts were asked for is not known: the materialized inputs are missing beside the results"
    share = 100.0 * found.scored / found.expected if found.expected else 100.0
    if share >= percent:
        return None
    return f"{found.scored:,} of {found.expected:,} rollouts have a result, {share:.2f} %; {percent:g} % were asked for"
