"""Usage of several calls as one: unknown stays unknown (platform.md A5)."""

from __future__ import annotations

from typing import Any

import pytest

from environments.usage import add_usage


def usage(i: int, o: int, cached: int | None, reasoning: int | None) -> dict[str, Any]:
    return {
        "input_tokens": i,
        "output_tokens": o,
        "total_tokens": i + o,
        "input_tokens_details": {"cached_tokens": cached},
        "output_tokens_details": {"reasoning_tokens": reasoning},
    }


@pytest.mark.parametrize(
    ("first", "second", "total"),
    [
        (usage(1, 2, 3, 4), usage(10, 20, 30, 40), usage(11, 22, 33, 44)),
        (usage(1, 2, None, 4), usage(10, 20, 30, 40), usage(11, 22, None, 44)),
        (usage(1, 2, 0, None), usage(10, 20, 0, 0), usage(11, 22, 0, None)),
        (None, usage(1, 2, 3, 4), usage(1, 2, 3, 4)),
        (usage(1, 2, 3, 4), None, usage(1, 2, 3, 4)),
        (usage(1, 2, 3, 4), {}, usage(1, 2, 3, 4)),
        (None, {}, None),
        ({"input_tokens": 1}, usage(1, 1, 0, 0), {**usage(2, 1, None, None), "output_tokens": None, "total_tokens": None}),
    ],
)
def test_sum(first: Any, second: Any, total: Any) -> None:
    assert add_usage(first, second) == total


def test_details_of_another_shape_are_unknown() -> None:
    odd = {**usage(1, 1, 1, 1), "input_tokens_details": "many", "output_tokens_details": None}
    assert add_usage(odd, usage(1, 1, 1, 1)) == usage(2, 2, None, None)
