"""Scores, fields and tool texts equal the reference's, case by case."""

from __future__ import annotations

import pytest

from tests.conformance import agents, running
from tests.conformance.cases import Case
from tests.conformance.report import REPORT

pytestmark = pytest.mark.conformance


def test_case(case: Case, record_property: pytest.FixtureRequest, pytestconfig: pytest.Config) -> None:
    record_property("conformance", case.subject)
    of_agent = case.subject.startswith("agents/")
    why = (agents if of_agent else running).obstacle(case)
    if why:
        pytest.skip(why)
    found = (agents if of_agent else running).run(case)
    if pytestconfig.getoption(REPORT, None) and not of_agent:
        spent: list[float] = []
        running.run(case, spent)  # once more: the first run of a case imports and loads what it needs
        record_property("verify_cpu_s", spent)
    assert not found, f"{case.id} ({case.data.get('note', '')}):\n" + "\n".join(found)
