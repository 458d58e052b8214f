"""Request parameters and repeats as they are typed (platform.md B3, B4)."""

from __future__ import annotations

from typing import Any

import pytest

from rollstream.runfiles.overrides import read_overrides, read_repeats
from rollstream.runfiles.problems import PlanError


@pytest.mark.parametrize(
    ("argument", "expected"),
    [
        ("temperature=0.7", {"temperature": 0.7}),
        ("responses_create_params.temperature=1", {"temperature": 1}),
        ("+responses_create_params.top_p=null", {"top_p": None}),
        ("++responses_create_params.parallel_tool_calls=False", {"parallel_tool_calls": False}),
        ("instructions=be brief = short", {"instructions": "be brief = short"}),
        ("model=", {"model": ""}),
        ('tools=[{"type": "function"}]', {"tools": [{"type": "function"}]}),
        ("responses_create_params.reasoning.effort=high", {"reasoning": {"effort": "high"}}),
        ('user="7"', {"user": "7"}),
    ],
)
def test_b3_overrides(argument: str, expected: dict[str, Any]) -> None:
    assert read_overrides([argument]) == expected


def test_b3_nested_keys_meet() -> None:
    assert read_overrides(["reasoning.effort=low", "reasoning.summary=auto"]) == {
        "reasoning": {"effort": "low", "summary": "auto"}
    }


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["max_tokens=5"], "max_tokens: unknown key; did you mean max_output_tokens?"),
        (["temperature"], "write responses_create_params.KEY=VALUE"),
        (["reasoning.=x"], "write responses_create_params.KEY=VALUE"),
        (["=x"], "write responses_create_params.KEY=VALUE"),
        (["top_p=1", "top_p=0.5"], "top_p is given twice"),
        (["reasoning=1", "reasoning.effort=low"], "reasoning has a value already that is no mapping"),
    ],
)
def test_b3_what_is_no_override(arguments: list[str], said: str) -> None:
    with pytest.raises(PlanError) as error:
        read_overrides(arguments)
    assert said in str(error.value)


def test_b4_repeats() -> None:
    assert read_repeats([]) is None
    assert read_repeats(["4"]) == 4
    assert read_repeats(["a=4,_default=1", "b=2"]) == {"a": 4, "_default": 1, "b": 2}


@pytest.mark.parametrize("arguments", [["x"], ["-1"], ["4", "a=2"], ["a="], ["a=x"], ["=2"], ["a=1", "a=2"], ["1.5"], ["٣"]])
def test_b4_what_is_no_number(arguments: list[str]) -> None:
    with pytest.raises(PlanError, match="repeats"):
        read_repeats(arguments)
