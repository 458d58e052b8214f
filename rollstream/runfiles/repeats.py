"""How many rollouts each row is to have (platform.md B4): one number, or one for each agent."""

from __future__ import annotations

from collections.abc import Mapping

from rollstream.runfiles.problems import PlanError
from schemas.prompts import MAX_REPEATS

DEFAULT = "_default"

Repeats = int | Mapping[str, int | None] | None
"""None means 1; in a map, `_default` is for agents without an entry of their own."""


class RepeatPlan:
    """Answers for each agent, and remembers who asked. Raises `PlanError` for counts outside 1 … `MAX_REPEATS`."""

    def __init__(self, repeats: Repeats) -> None:
        self._table = {k: _count(k, v) for k, v in repeats.items()} if isinstance(repeats, Mapping) else None
        self._single = 1 if isinstance(repeats, Mapping) else _count("num_repeats", repeats)
        self._asked: dict[str, bool] = {}

    def of(self, agent: str) -> int | None:
        """Rollouts for a row of `agent`; None when the map neither names it nor has a default."""
        if self._table is None:
            return self._single
        found = self._table.get(agent, self._table.get(DEFAULT))
        self._asked[agent] = found is not None
        return found

    def check(self) -> None:
        """Raise one `PlanError` that names every agent that got no answer."""
        missing = sorted(a for a, answered in self._asked.items() if not answered)
        if missing:
            known = ", ".join(sorted(self._table or ())) or "none"
            raise PlanError(f"num_repeats has no entry for {', '.join(missing)} and no {DEFAULT}; add one (there are: {known})")

    def warnings(self) -> list[str]:
        """One warning for all entries that no row has used."""
        unused = sorted(self._table.keys() - self._asked.keys() - {DEFAULT}) if self._table else []
        return [f"num_repeats: no row has the agent {', '.join(unused)}"] if unused else []


def _count(name: str, value: object) -> int:
    if value is None:
        return 1
    if not isinstance(value, int) or isinstance(value, bool) or not 1 <= value <= MAX_REPEATS:
        raise PlanError(f"{name}: the number of rollouts must be an integer from 1 to {MAX_REPEATS:,}, found {value!r}")
    return value
