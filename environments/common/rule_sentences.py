"""A sentence splitter by fixed rules, for checks whose scores depend on exactly these (instruction_following.md, ifbench.md).

Invariant: its time is linear in the text. The rules and their order are the specification's, quirks included: an answer that
holds one of the two marks itself is cut or joined there.
"""

from __future__ import annotations

import re

_DOT = "<prd>"
"""Stands for a full stop that ends no sentence."""

_END = "<stop>"
"""Stands where a sentence ends."""

_LETTER = "([A-Za-z])"
_STARTER = r"(Mr|Mrs|Ms|Dr|Prof|Capt|Cpt|Lt|He\s|She\s|It\s|They\s|Their\s|Our\s|We\s|But\s|However\s|That\s|This\s|Wherever)"
_COMPANY = "(Inc|Ltd|Jr|Sr|Co)"

_TITLE = re.compile(r"(Mr|St|Mrs|Ms|Dr)\.")
_SITE = re.compile(r"\.(com|net|org|io|gov|edu|me)")
_DECIMAL = re.compile(r"([0-9])\.([0-9])")
_RUN = re.compile(r"\.{2,}")
_REST = tuple(
    (re.compile(pattern), into)
    for pattern, into in (
        (rf"\s{_LETTER}\. ", rf" \1{_DOT} "),
        (rf"([A-Z]\.[A-Z]\.(?:[A-Z]\.)?) {_STARTER}", rf"\1{_END} \2"),
        (rf"{_LETTER}\.{_LETTER}\.{_LETTER}\.", rf"\1{_DOT}\2{_DOT}\3{_DOT}"),
        (rf"{_LETTER}\.{_LETTER}\.", rf"\1{_DOT}\2{_DOT}"),
        (rf" {_COMPANY}\. {_STARTER}", rf" \1{_END} \2"),
        (rf" {_COMPANY}\.", rf" \1{_DOT}"),
        (rf" {_LETTER}\.", rf" \1{_DOT}"),
    )
)
_QUOTES = (("”", ".”", "”."), ('"', '."', '".'), ("!", '!"', '"!'), ("?", '?"', '"?'))
_MARKS = re.compile(r"[.?!]")


def rule_sentences(text: str) -> list[str]:
    """The sentences of `text`, trimmed; a piece without words stays, only an empty last one is left out."""
    marked = _MARKS.sub(rf"\g<0>{_END}", _outside_quotes(_protected(text)))
    pieces = [piece.strip() for piece in marked.replace(_DOT, ".").split(_END)]
    return pieces if pieces[-1] else pieces[:-1]


def _protected(text: str) -> str:
    """`text` on one line, with a mark for each full stop that ends no sentence."""
    text = f" {text}  ".replace("\n", " ")
    text = _TITLE.sub(rf"\1{_DOT}", text)
    text = _SITE.sub(rf"{_DOT}\1", text)
    text = _DECIMAL.sub(rf"\1{_DOT}\2", text)
    text = _RUN.sub(lambda run: _DOT * len(run[0]) + _END, text)
    if "Ph.D" in text:
        text = text.replace("Ph.D.", f"Ph{_DOT}D{_DOT}")
    for pattern, into in _REST:
        text = pattern.sub(into, text)
    return text


def _outside_quotes(text: str) -> str:
    """`text` with the marks that end a sentence behind a closing quote instead of before it."""
    for sign, inside, outside in _QUOTES:
        if sign in text:
            text = text.replace(inside, outside)
    return text
