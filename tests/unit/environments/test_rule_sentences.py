"""Sentences by fixed rules: the rules of the specification, one by one, and what holds for any text."""

from __future__ import annotations

import time
from collections import Counter

import pytest
from hypothesis import given
from hypothesis import strategies as st

from environments.common.rule_sentences import rule_sentences


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("", []),
        ("No mark", ["No mark"]),
        ("One. Two? Three!", ["One.", "Two?", "Three!"]),
        ("Over\ntwo lines. End", ["Over two lines.", "End"]),
        ("Dr. Lee met Mrs. May at St. Ives.", ["Dr. Lee met Mrs. May at St. Ives."]),
        ("See a.com or b.medium now. Go.", ["See a.com or b.medium now.", "Go."]),
        ("It costs 1.5 now.", ["It costs 1.5 now."]),
        ("Version 1.2.3 is out.", ["Version 1.2.", "3 is out."]),
        ("Well... yes.", ["Well...", "yes."]),
        ("She has a Ph.D. in it.", ["She has a Ph.D. in it."]),
        ("Plan B. works. Plan c. too.", ["Plan B. works.", "Plan c. too."]),
        ("He left the U.S. He came back.", ["He left the U.S.", "He came back."]),
        ("In the U.S. people vote.", ["In the U.S. people vote."]),
        ("By A.B.C. today.", ["By A.B.C. today."]),
        ("Sold to Acme Inc. They paid.", ["Sold to Acme Inc", "They paid."]),
        ("Sold to Acme Inc. for cash.", ["Sold to Acme Inc. for cash."]),
        ('He said "go." She went.', ['He said "go".', "She went."]),
        ("He said “go.” She went.", ["He said “go”.", "She went."]),
        ('"Stop!" he said.', ['"Stop"!', "he said."]),
        ("Really?! Yes.", ["Really?", "!", "Yes."]),
        ("a<stop>b<prd> c", ["a", "b. c"]),
        (". .", [".", "."]),
    ],
)
def test_each_rule(text: str, expected: list[str]) -> None:
    assert rule_sentences(text) == expected


@given(st.text(alphabet=st.one_of(st.sampled_from('.?!"”\n MrDrInc Heab1'), st.characters(exclude_categories=["Cs"]))))
def test_nothing_is_added_and_nothing_but_blanks_and_dots_is_lost(text: str) -> None:
    found = rule_sentences(text)
    kept, given_ = Counter("".join("".join(found).split())), Counter("".join(text.split()))
    assert kept <= given_
    assert set(given_ - kept) <= {"."}
    assert all(sentence == sentence.strip() for sentence in found)
    assert not found or found[-1]


@pytest.mark.parametrize("unit", [".", ". ", "a.", " a. ", "A.B. He ", '."', "1.1", "<prd>", "\n", "Mr."])
def test_a_megabyte_takes_a_moment(unit: str) -> None:
    started = time.process_time()
    rule_sentences(unit * (1_000_000 // len(unit)))
    assert time.process_time() - started < 10
