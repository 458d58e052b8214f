"""Which answers of a group are compared, and what follows from the comparisons (genrm_compare.md, "Scoring").

Invariant: rewards depend on the answers' order alone, not on the order in which comparisons ended.
"""

from __future__ import annotations

import math
import re
import statistics
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from typing import Any, Literal, Protocol

Strategy = Literal["circular", "all_pairs"]
Pair = tuple[int, int]

_NEUTRAL_RANKING = 3.5
"""The middle of the ranking's scale, 1 (the first is much better) to 6 (the second is)."""


def pairs_of(size: int, strategy: Strategy) -> list[Pair]:
    """The pairs that are compared in a group of `size`, in order; circular pairs of two are both orders."""
    if size < 2:  # noqa: PLR2004 - a pair
        return []
    if strategy == "circular":
        return [(i, (i + 1) % size) for i in range(size)]
    return [(i, j) for i in range(size) for j in range(i + 1, size)]


@dataclass(frozen=True, slots=True)
class Comparison:
    """What one pass of the judge said of a pair; scores 1 (worst) to 5, `ranking` 1 (first better) to 6, none checked.

    `failed`: the values are the neutral ones, because the judge could not be reached or read.
    """

    response_i: int
    response_j: int
    judge_idx: int
    score_1: float
    score_2: float
    ranking: float
    failed: bool = False

    @property
    def tied(self) -> bool:
        """Whether only the ranking tells the two apart."""
        return self.score_1 == self.score_2

    @property
    def values(self) -> tuple[float, float]:
        """What each of the two gets."""
        lead = _NEUTRAL_RANKING - self.ranking if self.tied else 0.0
        return self.score_1 + lead, self.score_2 - lead

    @property
    def result(self) -> dict[str, Any]:
        """The entry of `comparison_results`."""
        return {k: v for k, v in asdict(self).items() if k != "failed"}


class Weights(Protocol):
    """The settings of the adjustments (`GenrmConfig`)."""

    default_score: float
    reasoning_bonus: float
    answer_bonus: float
    top_percentile: float
    group_reasoning_length_penalty_coeff: float
    group_answer_length_penalty_coeff: float
    group_style_penalty_coeff: float


@dataclass(frozen=True, slots=True)
class Answer:
    """One sibling's answer: its text, and how many characters its reasoning has."""

    text: str
    reasoning_length: int = 0

    @property
    def length(self) -> int:
        """Characters of the trimmed text."""
        return len(self.text.strip())


def rewards(comparisons: Sequence[Comparison], answers: Sequence[Answer], weights: Weights) -> list[float]:
    """The reward of each answer: its mean over the comparisons, adjusted by length and style as `weights` say."""
    ordered = sorted(comparisons, key=lambda c: (c.judge_idx, c.response_i, c.response_j))
    gained: list[list[float]] = [[] for _ in answers]
    for c in ordered:
        first, second = c.values
        gained[c.response_i].append(first)
        gained[c.response_j].append(second)
    scores = [sum(values) / len(values) if values else weights.default_score for values in gained]
    if len(answers) < 2:  # noqa: PLR2004 - adjustments are relative to siblings
        return scores
    return _with_style(_with_length(scores, answers, weights), answers, weights)


def metrics(comparisons: Sequence[Comparison]) -> dict[str, float]:
    """Mean and population standard deviation of all scores, and how often a tie was broken."""
    scores = [score for c in comparisons for score in (c.score_1, c.score_2)]
    return {
        "mean_individual_score": statistics.fmean(scores),
        "std_individual_score": statistics.pstdev(scores),
        "tiebreak_usage_rate": sum(c.tied for c in comparisons) / len(comparisons),
    }


def _with_length(scores: list[float], answers: Sequence[Answer], w: Weights) -> list[float]:
    reasoning, length = [a.reasoning_length for a in answers], [a.length for a in answers]
    top = max(0, math.floor(len(scores) * w.top_percentile) - 1)
    threshold = sorted(scores, reverse=True)[min(top, len(scores) - 1)]
    for bonus, lengths in ((w.reasoning_bonus, reasoning), (w.answer_bonus, length)):
        if bonus > 0:
            scores = _with_bonus(scores, lengths, bonus, threshold)
    for coefficient, lengths in (
        (w.group_reasoning_length_penalty_coeff, reasoning),
        (w.group_answer_length_penalty_coeff, length),
    ):
        if coefficient > 0:
            scores = _with_penalty(scores, lengths, coefficient)
    return scores


def _with_bonus(scores: list[float], lengths: Sequence[int], bonus: float, threshold: float) -> list[float]:
    """The shortest that is not empty gets the bonus, when its score is among the top ones; else nobody does."""
    present = [i for i, length in enumerate(lengths) if length > 0]
    shortest = min(present, key=lambda i: lengths[i], default=None)
    if shortest is None or scores[shortest] < threshold:
        return scores
    return [score + bonus if i == shortest else score for i, score in enumerate(scores)]


def _with_penalty(scores: list[float], amounts: Sequence[float], coefficient: float) -> list[float]:
    """The less, the better: a weight from 0 (most) to 1 (least), less the group's mean, times the coefficient."""
    low, high = min(amounts), max(amounts)
    if low == high:
        return scores
    raw = [1 - (amount - low) / (high - low) for amount in amounts]
    mean = sum(raw) / len(raw)
    return [score + (weight - mean) * coefficient for score, weight in zip(scores, raw, strict=True)]


def _with_style(scores: list[float], answers: Sequence[Answer], w: Weights) -> list[float]:
    if w.group_style_penalty_coeff <= 0:
        return scores
    return _with_penalty(scores, [markup_density(a.text) for a in answers], w.group_style_penalty_coeff)


_EMOJI = (
    "\U0001f600-\U0001f64f\U0001f300-\U0001f5ff\U0001f680-\U0001f6ff\U0001f1e0-\U0001f1ff"
    "\u2702-\u27b0\u24c2-\U0001f251\U0001f900-\U0001f9ff\U0001fa00-\U0001faff\u2600-\u26ff"
)
"""As the reference counts them; U+24C2 to U+1F251 also holds CJK and Hangul."""

_FENCED = re.compile(r"```.*?```", re.DOTALL)
_MARKUP: tuple[Callable[[str], list[Any]], ...] = (
    re.compile(r"^#{1,6}\s", re.MULTILINE).findall,
    re.compile(r"^[ \t]*(?:\d+\.|[-*+])\s", re.MULTILINE).findall,
    re.compile(r"\*\*[^*\n]+\*\*").findall,
    re.compile(r"__[^_\n]+__").findall,
    re.compile(f"[{_EMOJI}]").findall,
)


def markup_density(text: str) -> float:
    """Headers, list items, bold stretches and emoji for each character outside of fenced code; 0.0 without any text."""
    plain = _FENCED.sub("", text)
    length = len(plain.strip())
    return sum(len(find(plain)) for find in _MARKUP) / length if length else 0.0


def by_group(values: Sequence[str]) -> dict[str, list[int]]:
    """Indexes by value, in order."""
    found: dict[str, list[int]] = {}
    for index, value in enumerate(values):
        found.setdefault(value, []).append(index)
    return found
