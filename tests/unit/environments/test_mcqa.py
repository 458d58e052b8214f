"""mcqa: what the page says and the cases do not show, agreement of `regex` with `re`, and time bounds on hostile answers."""

from __future__ import annotations

import re
import time
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from environments.common.options import Options, last_boxed, unwrap_text
from environments.mcqa import patterns
from environments.mcqa.environment import Mcqa, McqaConfig
from environments.mcqa.grading import MODES
from environments.mcqa.patterns import TIME_LIMIT_S, PatternError, last_captures
from environments.testing import EnvironmentHarness, response
from environments.verdict import Verdict
from schemas.errors import DataError

OPTIONS = [{"A": "Square"}, {"B": "Circle"}, {"C": "Right triangle"}, {"D": "Triangle"}]
SHAPES = Options.of(OPTIONS)
BOUNDED_S = TIME_LIMIT_S + 5
"""The limit, and what a busy machine may add; without the limit these would take hours."""


def verify(text: str, mode: str | None = None, **row: Any) -> Verdict:
    harness = EnvironmentHarness(Mcqa(McqaConfig(grading_mode=mode)))
    harness.seed({"responses_create_params": {"input": "?"}, "options": OPTIONS, "expected_answer": "B", **row})
    return harness.verify(response(text))


def letter(text: str, mode: str) -> str | None:
    return MODES[mode](text.strip(), SHAPES)


def with_regex(text: str, source: Any) -> Verdict:
    return verify(text, template_metadata={"output_regex": source})


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        (r"\boxed{(B)}", "B"),
        (r"\boxed{B.}", "B"),
        (r"\boxed{ \text{ \text{B} } }", "B"),
        (r"\boxed{B - Circle}", "B"),
        (r"\boxed{B ) Circle}", "B"),
        (r"\boxed{D. coli}", "D"),
        (r"\boxed{E. coli}", None),
        (r"\boxed{B Circle}", None),
        (r"\boxed{éB}", "B"),
        (r"\boxed{\frac{1}{2}}", None),
        (r"\boxed{}", None),
        (r"\boxed {B}", None),
    ],
)
def test_strict_boxed(text: str, expected: str | None) -> None:
    assert letter(text, "strict_single_letter_boxed") == expected


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        (r"\boxed{square}", "A"),
        (r"\boxed{\text{a  Square}}", "A"),
        (r"\boxed{square or circle}", None),
        (r"\boxed{b}", None),
        (r"\boxed{C. a circle}", "C"),
    ],
)
def test_lenient_boxed(text: str, expected: str | None) -> None:
    assert letter(text, "lenient_boxed") == expected


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("the finalANSWER:\n\n  d\nmore", "D"),
        ("Answer: right   TRIANGLE", "C"),
        ("Answer: e", None),
        ("Answer: \nAnswer: B", None),
        ("Answer B", None),
        ("My reply\nanswer:", None),
    ],
)
def test_answer_colon(text: str, expected: str | None) -> None:
    assert letter(text, "lenient_answer_colon") == expected


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("**Answer:** B", "B"),
        ("__Answer__ : **c**", "C"),
        ("answer: a circle", "A"),
        ("Answer: it is B", "B"),
        ("Answer: (D)", "D"),
        ("Answer: A, B", None),
        ("Answer: A AND b", None),
        ("Answer: A or Z", "A"),
        ("Answer: B because A and C are wrong", None),
        ("Answer: B because A is not round", "B"),
        ("Answer: B and then B", "B"),
        ("Answer: Z", None),
        ("Answer: ２", None),
        ("Answer: Ｂ", "B"),
        ("Answer: ব", "B"),
        ("Answer: D\nAnswer:", "D"),
    ],
)
def test_answer_colon_md(text: str, expected: str | None) -> None:
    assert letter(text, "lenient_answer_colon_md") == expected


@pytest.mark.parametrize(
    ("sources", "text", "expected"),
    [
        (["pick (.+)$"], "I pick right  Triangle", "C"),
        (["pick (.)"], "I pick ب", "B"),
        (["pick (.+)$"], "I pick none of these \\boxed{B}", "B"),
        (["[A-D]"], "a b C", "C"),
        (["(x)?[A-D]"], "B", None),
        (["(["], r"\boxed{B}", "B"),
        ([5, None, {"a": 1}, "pick (.)"], "pick c", "C"),
        ([], r"\boxed{B}", "B"),
        ([""], r"\boxed{B}", "B"),
        (["x" * 10_000], r"\boxed{B}", "B"),
        ([r"\p{L}"], r"\boxed{B}", "B"),
        (["(?P<x>B)(?P=x)?"], "B", "B"),
    ],
)
def test_custom_patterns(sources: list[Any], text: str, expected: str | None) -> None:
    assert with_regex(text, sources).fields["extracted_answer"] == expected


def test_a_pattern_with_several_groups_gives_no_answer_and_says_so() -> None:
    verdict = with_regex(r"A B \boxed{B}", "(A) (B)")
    assert (verdict.reward, verdict.fields["extracted_answer"]) == (0.0, None)
    assert "2 groups" in verdict.fields["extraction_error"]


def test_a_pattern_with_several_groups_that_matches_nothing_is_passed_over() -> None:
    assert with_regex(r"\boxed{B}", "(X) (Y)").reward == 1.0


@pytest.mark.parametrize("pattern", [r"(?:a|a)*c$", r"(?:a*)*c$", r"(?:a|b|ab)*(?:c)$", r"(a+)+$x", r".*.*.*=.*\d"])
def test_catastrophic_backtracking_ends_in_bounded_time(pattern: str) -> None:
    started = time.perf_counter()
    verdict = with_regex("a" * 5_000 + "b=c" * 5_000 + r" \boxed{B}", pattern)
    assert time.perf_counter() - started < BOUNDED_S
    assert verdict.reward in (0.0, 1.0)


def test_the_time_limit_is_shared_by_all_patterns() -> None:
    text = "a" * 5_000 + "b"
    started = time.perf_counter()
    with pytest.raises(PatternError, match="longer than"):
        list(last_captures([f"(?:a+)+${i}" for i in range(40)], text))
    assert time.perf_counter() - started < BOUNDED_S


def test_a_pattern_that_runs_too_long_says_so() -> None:
    verdict = with_regex("a" * 5_000 + r"b \boxed{B}", "(?:a+)+$x")
    assert (verdict.reward, verdict.fields["extracted_answer"]) == (0.0, None)
    assert verdict.fields["extraction_error"] == "output_regex took longer than 0.5 s"


class CutShort:
    """A pattern whose searches end at the limit without having used their own thread's time, `times` times."""

    groups = 0

    def __init__(self, times: int) -> None:
        self.times = times
        self.timeouts: list[float] = []

    def finditer(self, text: str, timeout: float) -> Any:
        self.timeouts.append(timeout)
        yield "A"
        if len(self.timeouts) <= self.times:
            raise TimeoutError
        yield "B"


def test_a_search_that_busy_neighbours_cut_short_is_tried_again_with_more_time() -> None:
    pattern = CutShort(2)
    assert patterns._last(pattern, "text", time.thread_time() + 0.5) == "B"
    assert pattern.timeouts == pytest.approx([0.5, 1.0, 2.0], rel=0.1)


def test_a_search_is_not_tried_for_ever() -> None:
    pattern = CutShort(100)
    with pytest.raises(PatternError, match="longer than"):
        patterns._last(pattern, "text", time.thread_time() + 0.5)
    assert len(pattern.timeouts) == patterns.MAX_TRIES


@pytest.mark.parametrize(
    "row",
    [
        {"grading_mode": "lenient_answer_colon_md"},
        {"grading_mode": None},
        {"options": [{"A": 1}]},
        {"options": "A"},
        {"expected_answer": 5},
        {"template_metadata": "x"},
    ],
)
def test_rows_that_do_not_fit_are_refused(row: dict[str, Any]) -> None:
    with pytest.raises(DataError, match=rf"row\.{next(iter(row))}"):
        verify("x", **row)


@pytest.mark.parametrize(
    "row", [{"options": None}, {"expected_answer": None}, {"template_metadata": None}, {"metadata": {"a": 1}, "uuid": "u"}]
)
def test_optional_fields_may_be_null(row: dict[str, Any]) -> None:
    assert verify("nothing", **row).reward == 0.0


# `regex` against `re`: patterns of the kinds that data sets bring, on text made of what they look for.

PIECES = st.sampled_from(
    ["Answer", "ANSWER IS", "Option Selected:", "final choice", r"\s*", r"\s+", "([A-Z])", "(.+)", "[^a-z]*"]
)
ORDINARY = st.lists(
    PIECES | st.sampled_from([r"\b", "(?:is|:)?", r"\(", r"\)?", "$", "^", r"\w+", ".*?", "é", "[A-Za-z]", "(?!x)"]),
    min_size=1,
    max_size=6,
)
WORDS = st.sampled_from(
    ["Answer", "answer is", "Option Selected:", "FINAL CHOICE", " ", "\n", "A", "b", "(C)", "é", "É", ":", "x1", "東"]
)


@settings(max_examples=300)
@given(pattern=ORDINARY.map("".join), text=st.lists(WORDS, max_size=12).map("".join))
def test_regex_reads_ordinary_patterns_as_re_does(pattern: str, text: str) -> None:
    found = re.findall(pattern, text, re.IGNORECASE)
    if found and isinstance(found[-1], tuple):
        with pytest.raises(PatternError, match="groups"):
            list(last_captures(pattern, text))
    else:
        assert list(last_captures(pattern, text)) == found[-1:]


# Text rules against plain formulations.


@given(st.text(alphabet=r"\boxed{} AB", max_size=60))
def test_last_boxed_agrees_with_counting_braces(text: str) -> None:
    start, depth, expected = text.rfind(r"\boxed{"), 0, None
    if start >= 0:
        for i in range(start + 6, len(text)):
            depth += {"{": 1, "}": -1}.get(text[i], 0)
            if depth == 0:
                expected = text[start + 7 : i]
                break
    assert last_boxed(text) == expected


@given(st.lists(st.sampled_from([r"\text{", "}", " ", "\n", "A", "B", "{"]), max_size=14).map("".join))
def test_unwrap_text_agrees_with_cutting(text: str) -> None:
    expected = text
    while expected.startswith(r"\text{") and expected.endswith("}"):
        expected = expected[6:-1].strip()
    assert unwrap_text(text) == expected


@given(text=st.text(max_size=300), mode=st.sampled_from(list(MODES)))
def test_any_text_is_scored(text: str, mode: str) -> None:
    verdict = verify(text, mode)
    assert verdict.reward in (0.0, 1.0)
    assert verdict.fields["extracted_answer"] in {None, *SHAPES.letters}


SIZE = 1_000_000
HOSTILE = {
    "braces": r"\boxed{" + "{}" * (SIZE // 2) + "}",
    "open-braces": r"\boxed{" + "{" * SIZE,
    "many-boxes": r"\boxed{" * (SIZE // 7),
    "nested-wrappers": r"\boxed{" + r"\text{" * (SIZE // 8) + "B" + " }" * (SIZE // 8) + "}",
    "blank-wrapper": r"\boxed{\text{" + " " * SIZE + "}}",
    "symbols": r"\boxed{" + "." * SIZE + "}",
    "label-blanks": r"\boxed{B" + " " * SIZE + "x}",
    "colon-wrapper": "Answer: " + r"\text{" * (SIZE // 8) + "B" + "}" * (SIZE // 8),
    "answer-blanks": "answer" + " " * SIZE + "x",
    "answer-lines": "Answer:xy\n" * (SIZE // 10),
    "answer-symbols": "answer*: **.\n" * (SIZE // 13),
    "lone-letters": "Answer: x " + "A1B1" * (SIZE // 4),
    "same-letter": "Answer: é " + "A, " * (SIZE // 3),
    "letters-blanks": "Answer: é A" + " " * SIZE + "é B",
    "capitals": "Answer: é " + "Z." * (SIZE // 2),
    "surrogates": "\ud800" * SIZE,
    "emoji": "\U0001f600" * SIZE,
    "spaces": " a" * (SIZE // 2),
}


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("text", HOSTILE.values(), ids=HOSTILE)
def test_a_hostile_megabyte_takes_well_under_a_second(text: str, mode: str) -> None:
    started = time.process_time()  # CPU time: a busy machine is not the verifier's fault
    MODES[mode](text.strip(), SHAPES)
    assert time.process_time() - started < 0.8
