import unicodedata

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rollstream.text import printable


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("plain – é 漢", "plain – é 漢"),
        ("\x1b[2J\x07", "\\x1b[2J\\x07"),
        ("two\nlines\r", "two\\x0alines\\x0d"),
        ("\u202eevil", "\\u202eevil"),
        ("\ud800", "\\ud800"),
        ("\x9b31m", "\\x9b31m"),
    ],
)
def test_what_has_no_glyph_is_escaped(text, shown):
    assert printable(text) == shown


def test_long_text_is_cut():
    assert printable("abcdef", 4) == "abc…"


@given(st.text(st.characters(exclude_categories=())))
def test_nothing_invisible_is_left(text):
    assert not any(unicodedata.category(c) in {"Cc", "Cf", "Cs", "Zl", "Zp"} for c in printable(text))
