"""Reward and category of an action, given the expected one (the page's "Scoring", steps 4 to 8)."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

from pydantic import BaseModel, ConfigDict

from environments.single_step_tool_use_with_argument_comparison.categories import Category
from environments.single_step_tool_use_with_argument_comparison.comparing import Call, Comparator
from environments.single_step_tool_use_with_argument_comparison.pairing import paired


class ComparatorConfig(BaseModel):
    """How calls are compared and batches rewarded.

    `parallel_tool_call_rewarding` says whether the number of calls matters; the fields after it apply only if it does.
    """

    model_config = ConfigDict(extra="forbid")

    word_count_similarity_threshold: float
    floating_point_comparison_threshold: float = 1e-6
    parallel_tool_call_rewarding: bool = False
    allow_subset: bool = False
    allow_superset: bool = False
    parallel_tool_call_reward_mode: Literal["binary_strict", "fractional", "f1"] = "binary_strict"

    def comparator(self) -> Comparator:
        return Comparator(self.word_count_similarity_threshold, self.floating_point_comparison_threshold)


@dataclass(frozen=True, slots=True)
class Score:
    """A reward from 0 to 1 and why."""

    reward: float
    category: Category


def score_calls(expected: Sequence[Call], actual: Sequence[Call], config: ComparatorConfig) -> Score:
    """The score of one or more calls against one or more expected ones. Raises `ExpectationError`."""
    comparator = config.comparator()
    if len(expected) == len(actual) == 1:
        category = comparator.compare(expected[0], actual[0])
        return Score(float(category is Category.CALL), category)
    if config.parallel_tool_call_rewarding and _wrong_number(len(expected), len(actual), config):
        return Score(0.0, Category.BATCH_LENGTH)
    return _score_batch(expected, actual, config, comparator)


def _score_batch(expected: Sequence[Call], actual: Sequence[Call], config: ComparatorConfig, comparator: Comparator) -> Score:
    places = {call: i for i, call in enumerate(dict.fromkeys(actual))}  # a megabyte of one call is compared once
    results = [[comparator.compare(e, a) for a in places] for e in expected]
    kinds = [places[call] for call in actual]
    partners = paired([[i for i, kind in enumerate(kinds) if found[kind] is Category.CALL] for found in results])
    matched, wanted, made = len(partners), len(expected), len(actual)
    reward = _reward(matched, wanted, made, config)
    if reward == 1.0:
        return Score(reward, Category.CALL if wanted == 1 else Category.BATCH)
    if matched in (wanted, made):
        return Score(reward, Category.BATCH_LENGTH)
    return Score(reward, _reason(results[min(set(range(wanted)) - partners.keys())]))


def _wrong_number(wanted: int, made: int, config: ComparatorConfig) -> bool:
    return (made < wanted and not config.allow_subset) or (made > wanted and not config.allow_superset)


def _reward(matched: int, wanted: int, made: int, config: ComparatorConfig) -> float:
    if not config.parallel_tool_call_rewarding:
        return float(matched == wanted)
    if config.parallel_tool_call_reward_mode == "f1":
        return 2 * matched / (wanted + made)
    required = min(wanted, made) if config.allow_subset else wanted
    return matched / required if config.parallel_tool_call_reward_mode == "fractional" else float(matched == required)


def _reason(results: Sequence[Category]) -> Category:
    """Why an expected call has no partner: the first comparison, in the order of the calls, in which the tool fitted."""
    return next((r for r in results if r is not Category.UNEXPECTED_TOOL), Category.UNEXPECTED_TOOL)
