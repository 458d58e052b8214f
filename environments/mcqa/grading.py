"""How a letter is read from an answer: one function per grading mode.

Every function takes the answer's text (stripped, not empty) and the options, and returns an upper-case letter or None.
Invariant: their time is linear in the text, whatever the text.
"""

from __future__ import annotations

import re
import string
from collections.abc import Callable, Sequence

from environments.common.options import Options, fold, last_boxed, unwrap_text, with_latin_letters
from environments.mcqa.patterns import last_captures

_ONE_CAPITAL = re.compile(r"[^A-Za-z]*([A-Z])[^A-Za-z]*")
_LABEL = re.compile(r"([A-Z])\s*[:).\-]")
_ANSWER_COLON = re.compile(r"answer\s*:\s*(.+)", re.IGNORECASE)
_ANSWER_COLON_MD = re.compile(r"answer[*_]{0,2}\s*:[*_\s]{0,2}(.*)", re.IGNORECASE)
_MD_TRIM = "*_`.,;:" + string.whitespace
_LEADING_LETTER = re.compile(r"([A-Za-z])(?![^\W_])")
_CAPITAL_WORD = re.compile(r"\b[A-Z]\b")
_SEPARATOR = r"(?:\s+(?:(?i:or|and)\s+)?|\s*[/|&,;]\s*)"


def from_patterns(patterns: object, text: str, options: Options) -> str | None:
    """The letter that a custom pattern finds, which need not be an option's; raises `PatternError`."""
    for capture in last_captures(patterns, text):
        answer = with_latin_letters(capture.strip()).strip()
        if len(answer) == 1 and answer.isalpha():
            return answer.upper()
        letter = options.letter_of(answer)
        if letter is not None:
            return letter
    return None


def strict_boxed(text: str, options: Options) -> str | None:
    """A capital on its own in the last box, or one that labels what follows it there."""
    content = last_boxed(text)
    return None if content is None else _boxed_letter(unwrap_text(content.strip()), options)


def lenient_boxed(text: str, options: Options) -> str | None:
    """As `strict_boxed`; failing that, the one option whose text occurs in the last box."""
    content = last_boxed(text)
    if content is None:
        return None
    unwrapped = unwrap_text(content.strip())
    return _boxed_letter(unwrapped, options) or _option_within((fold(content), fold(unwrapped)), options)


def answer_colon(text: str, options: Options) -> str | None:
    """The rest of the first line that follows "answer:": a letter or the text of an option."""
    found = _ANSWER_COLON.search(text)
    if found is None:
        return None
    payload = unwrap_text(found[1]).strip()
    letter = options.allowed(payload) if len(payload) == 1 and payload.isalpha() else None
    return letter or options.letter_of(payload)


def answer_colon_md(text: str, options: Options) -> str | None:
    """The letter of the last "Answer:" line, Markdown allowed, that gives one."""
    ambiguous = _ambiguity(options)
    payloads = [m[1] for m in _ANSWER_COLON_MD.finditer(text)]
    letters = (_letter_of_line(p, ambiguous, options) for p in reversed(payloads))
    return next((letter for letter in letters if letter is not None), None)


MODES: dict[str, Callable[[str, Options], str | None]] = {
    "strict_single_letter_boxed": strict_boxed,
    "lenient_boxed": lenient_boxed,
    "lenient_answer_colon": answer_colon,
    "lenient_answer_colon_md": answer_colon_md,
}
"""Grading functions by the names that rows and configurations use."""


def _boxed_letter(content: str, options: Options) -> str | None:
    found = _ONE_CAPITAL.fullmatch(content) or _LABEL.match(content)
    return found[1] if found and found[1] in options.letters else None


def _option_within(bodies: Sequence[str], options: Options) -> str | None:
    matched = {letter for letter, known in options.folded if known and any(known in b for b in bodies)}
    return matched.pop() if len(matched) == 1 else None


def _letter_of_line(payload: str, ambiguous: re.Pattern[str] | None, options: Options) -> str | None:
    text = with_latin_letters(payload).strip().strip(_MD_TRIM)
    if not text or (ambiguous and ambiguous.search(text)):
        return None
    if len(text) == 1:
        return options.allowed(text)
    leading = _LEADING_LETTER.match(text)
    if leading:
        return options.allowed(leading[1])
    last = None
    for last in _CAPITAL_WORD.finditer(text):  # noqa: B007 - the last one is what is wanted
        pass
    return options.allowed(last[0]) if last else None


def _ambiguity(options: Options) -> re.Pattern[str] | None:
    """Matches a lone option letter that nothing but a list separator divides from another one."""
    letters = "".join(sorted(c for c in options.letters if c.isascii()))
    if not letters:
        return None
    letter = f"[{letters}{letters.lower()}]"
    other = rf"(?!(?i:\1)){letter}(?![A-Za-z])"
    return re.compile(f"(?<![A-Za-z])({letter})(?={_SEPARATOR}{other})")
