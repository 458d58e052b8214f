"""The data that lie beside the cases: what environments would have fetched (no key asks for them)."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

from environments.context import Context
from tests.conformance.cases import Case, directory
from tests.conformance.forms.form import Form

NEEDING = frozenset({"workplace_assistant"})
"""Environments whose cases are about data that the project does not ship, in a folder of the environment's name."""


class Data(Form):
    """Offers the folder `data` beside the directory of the cases as the environments' data folder, where there is one."""

    def obstacle(self, case: Case) -> str | None:
        folder = _folder()
        there = case.subject not in NEEDING or (folder is not None and (folder / case.subject).is_dir())
        return None if there else f"no data/{case.subject} beside the directory of the cases"

    def context(self, case: Case, context: Context) -> Context:
        folder = _folder()
        return replace(context, data_dir=folder) if folder else context


def _folder() -> Path | None:
    cases = directory()
    folder = cases.resolve().parent / "data" if cases else None
    return folder if folder and folder.is_dir() else None
