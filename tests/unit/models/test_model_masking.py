import json
from urllib.parse import quote

import pytest
from hypothesis import given
from hypothesis import strategies as st

from services.models.masking import EXCERPT_CHARS, Masker

SECRET = 'sk-ab/c+"1234567890'


def test_a_secret_is_masked_in_every_spelling():
    masker = Masker([f"Bearer {SECRET}"])
    for form in (SECRET, f"Bearer {SECRET}", json.dumps(SECRET), quote(SECRET, safe="")):
        shown = masker.mask(f"key {form} given")
        assert "1234567890" not in shown
        assert "***" in shown


def test_a_secret_within_a_secret_leaves_no_rest():
    assert Masker(["abcd", "abcdefgh"]).mask("x abcdefgh y") == "x *** y"


@pytest.mark.parametrize(
    "text", ["Authorization: Bearer abcdef.123", "Incorrect key sk-proj-AAAABBBBCCCC", "token hf_abcdefghijk!"]
)
def test_what_looks_like_a_key_of_others_is_masked(text):
    shown = Masker().mask(text)
    assert "***" in shown
    assert not any(part in shown for part in ("abcdef.123", "AAAABBBB", "abcdefghijk"))


def test_short_values_do_not_garble_texts():
    assert Masker(["1", "on"]).mask("1 error on line 1") == "1 error on line 1"


def test_an_excerpt_is_one_line_of_bounded_length():
    shown = Masker().excerpt(b"a\n\x00b\x1b[31m" + b"\xff" + b"x" * 10_000_000)
    assert "\n" not in shown
    assert "\x1b" not in shown
    assert len(shown) <= EXCERPT_CHARS
    assert Masker().excerpt(b"") == ""
    assert Masker().excerpt("plain") == "plain"


@given(st.integers(0, 9000), st.integers(1, 400))
def test_no_part_of_a_secret_survives_the_cut(before, count):
    secret = "".join(chr(0x100 + i) for i in range(40))
    body = ("." * before + (secret + " ") * count).encode()
    assert not set(Masker([secret]).excerpt(body)) & set(secret)
