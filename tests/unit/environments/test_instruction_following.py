"""instruction_following: what the page says and the cases do not show, agreement with the page's patterns, hostile answers."""

from __future__ import annotations

import contextlib
import json
import re
import time
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

import environments.instruction_following as package
from environments.common import english, instructions
from environments.common.instructions import Answer, InstructionError
from environments.context import Context
from environments.extras import OURS, install_command
from environments.instruction_following import layout
from environments.instruction_following.environment import KINDS, InstructionFollowing
from environments.testing import EnvironmentHarness, response
from environments.verdict import Verdict
from schemas.errors import DataError, InfrastructureError

HERE = Path(package.__file__).parent
ARGUMENTS: dict[str, Any] = {
    "keywords": ["tea", "a"], "keyword": "tea", "frequency": 3, "relation": "at least", "forbidden_words": ["x y"],
    "letter": "q", "let_frequency": 1, "let_relation": "less than", "n": 1, "m": 1, "N": 3, "n_sent": 2, "n_words": 3,
    "keyword1": "a", "keyword2": "b", "language": "de", "capital_frequency": 2, "capital_relation": "at least",
    "first_word": "a", "last_word": "a", "num_words": 3, "num_sentences": 3, "num_paragraphs": 2, "nth_paragraph": 1,
    "num_placeholders": 1, "postscript_marker": "P.S.", "num_bullets": 2, "num_highlights": 2,
    "section_spliter": "Section", "num_sections": 2, "end_phrase": "x", "prompt_to_repeat": "Say it.", "n_start": 1,
    "n_end": 3, "phrase": "a b a", "small_n": 2,
}  # fmt: skip
TEXTS = st.text(alphabet=st.one_of(st.sampled_from("*-[]<>. \n\"'!?aAb1"), st.characters()), max_size=80)


def ask(kind: str, text: str, **arguments: Any) -> bool:
    return KINDS.follows(kind, arguments, Answer(text))


def score(text: str, ids: list[str], kwargs: list[Any], **metadata: Any) -> Verdict:
    harness = EnvironmentHarness(InstructionFollowing())
    asked = {"instruction_id_list": ids, "kwargs": kwargs, "prompt": "p"} | metadata
    harness.seed({"responses_create_params": {"input": "?"}, "id": 1, "verifier_metadata": asked})
    return harness.verify(response(text))


def taken(kind: str) -> dict[str, Any]:
    return {name: ARGUMENTS[name] for name in KINDS._checks[kind][1]}


def test_there_are_54_kinds_and_each_refuses_arguments_it_does_not_know():
    assert len(KINDS.names) == 54
    for kind in KINDS.names:
        with pytest.raises(InstructionError, match="it takes no odd"):
            ask(kind, "x", odd=1)


GOOD = [
    "<<Balance>>\nIt steers under its own fall.",
    "Hello! " + "word " * 40 + "The parcel is here. Your parcel waits. See you at the gate.",
    "* Die frische Luft tut gut.\n* Man wird wach und bekommt gute Laune.\n* Die Straßen sind noch leer und ruhig.",
    "the lighthouse stands on a rock above the sea.\n***\nits lamp turns slowly through the whole night.",
    "Before you answer, repeat this request word for word, without change. Then name a river in Europe. The Loire.",
    "Bread at dawn.\n******\nFlour, water, patience.",
    '"Air scatters blue light most. So we see blue, except at sunset"',
]


def test_the_examples_can_be_followed_and_are_not_by_just_anything():
    lines = (HERE / "data" / "example.jsonl").read_text("utf-8").splitlines()
    assert len(lines) == len(GOOD)
    for line, good in zip(lines, GOOD, strict=True):
        harness = EnvironmentHarness(InstructionFollowing())
        harness.seed(json.loads(line))
        assert harness.verify(response(good)).reward == 1.0, good
        assert harness.verify(response("I, for one, cannot do this\n\nfresh! ")).reward < 1.0


def test_what_a_row_gets_wrong_is_not_followed_and_said():
    ids = ["a:b", "count:lowercase_counting", "keywords:existence", "length_constraints:number_words", "punctuation:no_comma"]
    found = score("x", ids, [{}, {"N": -1}, {"keywords": ["("]}, {"num_words": 1, "relation": "exactly"}, {}, {}])
    assert found.fields["follow_instruction_list"] == [False, False, False, False, True]
    problems = found.fields["instruction_problems"]
    assert [problems[str(i)].partition(": ")[0] for i in range(4)] == ids[:4]
    assert "instruction_problems" not in score("x", ids[4:], [None]).fields


def test_a_mode_that_is_none_is_the_rows_fault_and_so_are_missing_fields():
    for ids, kwargs, metadata in (
        ([], [], {"grading_mode": "strict"}),
        ([], [], {"grading_mode": None}),
        ([], None, {}),
        ([1], [], {}),
        ([], ["x"], {}),
    ):
        with pytest.raises(DataError):
            score("x", ids, kwargs, **metadata)


def test_the_metadata_are_told_as_read_extras_included():
    told = score("x", ["punctuation:no_comma"], [{"a": None}], more=1).fields["verifier_metadata"]
    assert told == {"instruction_id_list": ["punctuation:no_comma"], "kwargs": [{"a": None}], "prompt": "p", "more": 1}


@pytest.mark.parametrize(
    ("kind", "text", "arguments", "expected"),
    [
        ("keywords:frequency", "teatea", {"keyword": " tea ", "frequency": 2, "relation": "at least"}, True),
        ("keywords:forbidden_words", "A CAT sat", {"forbidden_words": ["c.t"]}, False),
        ("keywords:keyword_specific_position", "One. Two is", {"keyword": "is", "n": 2, "m": 2}, True),
        ("keywords:keyword_specific_position", "One.", {"keyword": "is", "n": 2, "m": 2}, False),
        ("letters:letter_counting", "aé", {"N": 1, "relation": "at least"}, True),
        ("count:counting_composition", "***a b.***c d.***e f.", {"n_sent": 1, "n_words": 3}, False),
        ("count:counting_composition", "a b. *** c d.\n***\ne f.", {"n_sent": 1, "n_words": 3}, True),
        ("paragraphs:paragraphs2", "One.\n\n\nTwo.", {}, True),
        ("paragraphs:paragraphs", "", {}, False),
        ("length_constraints:nth_paragraph_first_word", "x\n\n'\"Why?\" so", {"num_paragraphs": 2, "nth_paragraph": 2, "first_word": "why"}, True),
        ("detectable_content:number_placeholders", "[[a] ]b] [", {"num_placeholders": 2}, False),
        ("detectable_content:postscript", "x\nP.\nS. y", {"postscript_marker": "P.S."}, True),
        ("detectable_content:postscript", "p.p.s", {"postscript_marker": "P.P.S"}, True),
        ("detectable_format:multiple_sections", "Part 1 Part\n2 part 3", {"section_spliter": " Part ", "num_sections": 3}, False),
        ("detectable_format:json_format", "```JSON\nNaN```", {}, True),
        ("detectable_format:title", "<<a>", {}, False),
        ("detectable_format:title", "<<>>>", {}, False),
        ("detectable_format:square_brackets", "[", {}, False),
        ("detectable_format:sentence_hyphens", "One.-Two.- Three.", {}, False),
        ("combination:two_responses", "a\n******\n******\nb", {}, False),
        ("combination:two_responses", "a\n******\nb******", {}, True),
        ("first_word:first_word_answer", "", {"first_word": "a"}, False),
        ("last_word:last_word_sent", "It is so! I said (so).", {"last_word": "SO"}, True),
        ("copy:copying_multiple", "a******a", {"prompt_to_repeat": "A", "N": 3}, False),
        ("copy:repeat_phrase", "a b c, a x c", {"phrase": "a b c", "small_n": 2}, True),
        ("copy:repeat_phrase", "a x c, a x y c", {"phrase": "a b c", "small_n": 2}, False),
        ("new:copy_span_idx", "BC", {"prompt_to_repeat": "abcd", "n_start": 1, "n_end": 3}, True),
    ],
)  # fmt: skip
def test_edges(kind: str, text: str, arguments: dict[str, Any], expected: bool) -> None:
    assert ask(kind, text, **arguments) is expected


@pytest.mark.parametrize("name", sorted(ARGUMENTS))
def test_an_argument_that_is_missing_or_of_another_type_is_never_followed(name):
    for kind in KINDS.names:
        if name in KINDS._checks[kind][1]:
            given_ = taken(kind)
            for value in (None, {}, [], -1, ""):
                told = Answer("tea a 1")
                arguments = {k: v for k, v in {**given_, name: value}.items() if v is not None}
                with contextlib.suppress(InstructionError):
                    assert KINDS.follows(kind, arguments, told) is False, (kind, value)


@settings(max_examples=25, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(TEXTS)
def test_every_kind_answers_for_every_text(text):
    answer = Answer(text)
    for kind in KINDS.names:
        assert KINDS.follows(kind, taken(kind), answer) in (True, False)


@given(TEXTS)
def test_what_is_counted_by_walking_is_what_the_patterns_count(text):
    assert layout.star_lines(text) == len(re.findall(r"^\s*\*[^\*].*$", text, re.MULTILINE))
    assert layout.dash_lines(text) == len(re.findall(r"^\s*-.*$", text, re.MULTILINE))
    assert sum(map(layout._brackets, text.split("\n"))) == len(re.findall(r"\[.*?\]", text))
    spans = re.findall(r"<<[^\n]+>>", text)
    assert ask("detectable_format:title", text) is any(s.lstrip("<").rstrip(">").strip() for s in spans)


@pytest.mark.parametrize("unit", ["*\n", "Dr. ", "<<a "])
def test_a_megabyte_of_anything_is_scored_in_bounded_time(unit):
    text = unit * (1_000_000 // len(unit))
    kinds = [k for k in KINDS.names if k != "keywords:keyword_specific_position"]  # once through NLTK is enough for one test
    started = time.process_time()
    found = score(text, kinds, [taken(k) for k in kinds], grading_mode="fraction")
    assert time.process_time() - started < 45
    assert 0 <= found.reward <= 1


def test_keywords_that_backtrack_share_one_limit(monkeypatch):
    monkeypatch.setattr(instructions, "SEARCH_LIMIT_S", 0.2)
    started = time.process_time()
    hostile = {"keywords": ["(a|aa)+$", "(a|a)*b", "(a+)+$"]}
    found = score("a" * 200_000 + "!", ["keywords:existence"] * 3, [hostile] * 3)
    assert time.process_time() - started < 10
    assert found.fields["follow_instruction_list"] == [False] * 3
    assert "took longer than 0.2 s" in found.fields["instruction_problems"]["0"]


def test_a_text_too_long_for_nltk_is_said_and_tried_once(monkeypatch):
    calls = []

    def give_up(text, data_dir):
        calls.append(text)
        raise TimeoutError

    monkeypatch.setattr(english, "sentences", give_up)
    relation = {"num_sentences": 1, "relation": "less than"}
    found = score("x", ["length_constraints:number_sentences"] * 2, [relation] * 2)
    assert len(calls) == 1
    assert "too long" in found.fields["instruction_problems"]["1"]


def test_the_model_is_found_in_the_data_directory_and_its_absence_says_what_to_do(tmp_path, monkeypatch):
    (source,) = [f for f in english.nltk_folders(None) if (f / english._MODEL).is_dir()][:1]
    (tmp_path / "nltk" / english._MODEL).parent.mkdir(parents=True)
    (tmp_path / "nltk" / english._MODEL).symlink_to(source / english._MODEL)
    monkeypatch.setattr(english, "nltk_folders", lambda data_dir: [data_dir / "nltk"])
    assert english.sentences("Mr. Lee left. He ran.", tmp_path) == ["Mr. Lee left.", "He ran."]
    harness = EnvironmentHarness(InstructionFollowing(), context=Context(data_dir=tmp_path / "none"))
    asked = {"instruction_id_list": ["count:count_unique"], "kwargs": [None], "prompt": ""}
    harness.seed({"responses_create_params": {"input": "?"}, "id": 1, "verifier_metadata": asked})
    with pytest.raises(InfrastructureError, match=r"nltk\.downloader punkt_tab"):
        harness.verify(response("x"))


def test_a_missing_package_is_said_with_the_command_that_installs_it(monkeypatch):
    monkeypatch.setitem(__import__("sys").modules, "langdetect", None)
    with pytest.raises(InfrastructureError, match=re.escape(install_command(OURS, "instruction_following"))):
        ask("language:response_language", "Bonjour", language="fr")


def test_words_are_those_of_nltk_and_languages_are_told_alike_every_time():
    assert english.tokens("Mr. Lee can't. Go!", None) == ["Mr.", "Lee", "ca", "n't", ".", "Go", "!"]
    assert len({english.language("no es un test") for _ in range(20)}) == 1
    assert english.language("42") is None
