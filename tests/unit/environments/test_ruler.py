"""ruler: own rows, fields per subset, rows that are refused, and time bounds."""

from __future__ import annotations

import time
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from environments.registry import Registry
from environments.ruler.environment import SUBSETS
from environments.testing import EnvironmentHarness, response
from environments.verdict import Verdict
from schemas.errors import DataError
from schemas.rows import agent_name, parse_row

REGISTRY = Registry.load()
ROWS = [parse_row(x) for x in (REGISTRY.entry_of("ruler").folder / "data" / "example.jsonl").read_bytes().splitlines()]
MEGABYTE = 1 << 20


def verify(text: str, outputs: list[str], subset: str = "vt", **more: Any) -> Verdict:
    made = EnvironmentHarness(REGISTRY.binding("ruler", None))
    made.seed({"responses_create_params": {"input": "?"}, "length": 8, "outputs": outputs, "subset": subset, **more})
    return made.verify(response(text))


@pytest.mark.parametrize("row", ROWS)
def test_own_rows_hold_their_references(row: dict[str, Any]) -> None:
    assert len(ROWS) >= 5
    assert REGISTRY.binding(None, agent_name(row)).name == "ruler"
    assert row["subset"] in SUBSETS
    assert verify(" ".join(row["outputs"]), row["outputs"], row["subset"]).reward == 1.0
    prompt = row["responses_create_params"]["input"][0]["content"]
    assert all(reference in prompt for reference in row["outputs"])


def test_there_are_thirteen_subsets_and_only_the_rows_own_has_a_value() -> None:
    fields = verify("a", ["A", "b"], "cwe").fields
    assert {name for name, value in fields.items() if value is not None} == {"cwe"}
    assert len(fields) == 13
    assert fields["cwe"] == 0.5
    assert set(verify("a", ["A", "b"], "new").fields.values()) == {None}


@given(st.lists(st.text(max_size=4), min_size=1, max_size=5), st.text(max_size=30), st.sampled_from(["vt", "qa_1"]))
def test_the_reward_is_the_share_of_what_is_found(outputs: list[str], text: str, subset: str) -> None:
    found = [o.lower() in text.strip().lower() for o in outputs]
    assert verify(text, outputs, subset).reward == (any(found) if subset == "qa_1" else sum(found) / len(found))


@pytest.mark.parametrize("subset", ["length", "reward", "response", "outputs"])
def test_a_subset_cannot_take_a_fields_name(subset: str) -> None:
    with pytest.raises(DataError, match="subset"):
        verify("a", ["a"], subset)


def test_a_row_without_references_is_refused() -> None:
    with pytest.raises(DataError, match="outputs"):
        verify("a", [])


def test_case_is_not_folded() -> None:
    assert verify("STRASSE", ["straße"]).reward == 0.0


@pytest.mark.parametrize("needle", ["a" * 5000 + "b", "ab" * 2000 + "c"])
def test_a_megabyte_is_searched_in_bounded_time(needle: str) -> None:
    started = time.perf_counter()
    assert verify(needle[:-1] * (MEGABYTE // len(needle)), [needle] * 10).reward == 0.0
    assert time.perf_counter() - started < 5
