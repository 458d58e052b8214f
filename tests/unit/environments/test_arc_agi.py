"""arc_agi: own rows, agreement with the page's patterns, odd grids, and time bounds."""

from __future__ import annotations

import json
import re
import time
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from environments.arc_agi.extraction import _BOX, _RUN, _array_in, grid_of
from environments.registry import Registry
from environments.testing import EnvironmentHarness, response
from schemas.errors import DataError
from schemas.rows import agent_name, parse_row

REGISTRY = Registry.load()
ROWS = [parse_row(x) for x in (REGISTRY.entry_of("arc_agi").folder / "data" / "example.jsonl").read_bytes().splitlines()]
ARRAY = r"\[\s*\[[\d\s,\[\]]+\]\s*\]"
MEGABYTE = 1 << 20
BOUNDED_S = 5


def harness(**row: Any) -> EnvironmentHarness:
    made = EnvironmentHarness(REGISTRY.binding("arc_agi", None))
    made.seed({"responses_create_params": {"input": "?"}, **row})
    return made


@pytest.mark.parametrize("row", ROWS)
def test_own_rows_are_solved_by_their_grid_only(row: dict[str, Any]) -> None:
    assert len(ROWS) >= 5
    assert REGISTRY.binding(None, agent_name(row)).name == "arc_agi"
    made = harness(**{k: v for k, v in row.items() if k != "responses_create_params"})
    assert made.verify(response(f"\\boxed{{{json.dumps(row['expected_output'])}}}")).reward == 1.0
    assert made.verify(response(f"\\boxed{{{json.dumps(row['test_input'])}}}")).reward == 0.0


PIECES = st.lists(
    st.sampled_from(["[", "]", "[[", "]]", " ", "\n", ",", "1", "23", "x", "\\boxed{", "}", "\uff11", "\u00a0"]), max_size=25
)


@given(PIECES.map("".join))
def test_arrays_are_found_as_the_pages_patterns_find_them(text: str) -> None:
    assert [a for r in _RUN.finditer(text) if (a := _array_in(r[0]))] == re.findall(ARRAY, text)
    boxed = [m[1] for m in _BOX.finditer(text) if _array_in(m[1]) == m[1]]
    assert boxed == re.findall(r"\\boxed\{(" + ARRAY + r")\}", text)


@given(st.lists(st.lists(st.integers(0, 99), max_size=4), min_size=1, max_size=4).filter(lambda g: g[0]), st.booleans())
def test_a_grid_in_a_box_is_read(grid: list[list[int]], compact: bool) -> None:
    text = json.dumps(grid, separators=(",", ":") if compact else None, indent=None if compact else 1)
    wanted = grid if re.fullmatch(ARRAY, text) else None
    assert grid_of(f"[[0]] so \\boxed{{{text}}}") == (wanted or [[0]])


@given(st.text())
def test_any_text_is_read(text: str) -> None:
    grid_of(text)


@pytest.mark.parametrize("piece", ["[", "]", "[[", "[ ", "] ", "[[1],", "\\boxed{[[", "\\boxed{[[1]]", "1", "[[1]]x", "[\n\n]"])
def test_a_megabyte_is_read_in_bounded_time(piece: str) -> None:
    made = harness(expected_output=[[1]])
    for text in (piece * (MEGABYTE // len(piece)), "[[" + piece * (MEGABYTE // len(piece)) + "]]"):
        started = time.perf_counter()
        made.verify(response(text))
        assert time.perf_counter() - started < BOUNDED_S


def test_a_row_whose_grid_is_none_is_refused() -> None:
    with pytest.raises(DataError, match="expected_output"):
        harness(expected_output=[["a"]])
