"""Scores, fields and tool texts equal the reference's, case by case."""

from __future__ import annotations

import pytest

from tests.conformance import agents, running
from tests.conformance.cases import Case

pytestmark = pytest.mark.conformance


def test_case(case: Case, record_property: pytest.FixtureRequest) -> None:
    record_property("conformance", case.subject)
    runner = agents if case.subject.startswith("agents/") else running
    why = runner.obstacle(case)
    if why:
        pytest.skip(why)
    found = runner.run(case)
    assert not found, f"{case.id} ({case.data.get('note', '')}):\n" + "\n".join(found)
