"""Reading the policy's answer and the judge's grade.

Invariant: time is linear in the texts, and whatever they are, there is an answer and a grade.
"""

from __future__ import annotations

import re

from environments.common import replies
from environments.common.labels import ranked_label
from environments.common.options import last_boxed
from environments.common.thinking import without_thinking
from environments.response import Response

_GRADES = {"A": "correct", "B": "incorrect", "C": "abstain"}
_ARTICLES = re.compile(r"\b(?:a|an|the)\b")
_PUNCTUATION = re.compile(r"[^\w\s]")


def answer_of(response: Response) -> str:
    """The content of the last box of the last message with text, else all of that text; thinking left out."""
    text = without_thinking(replies.last_message(response) or "")
    boxed = last_boxed(text)
    return text if boxed is None else boxed


def abstains(answer: str, token: str) -> bool:
    """Whether the answer is the token, articles, punctuation and case aside."""
    return _plain(answer) == _plain(token)


def grade(said: str) -> str:
    """The grade in a judge's text: a letter alone, or alone on the last line, else the first of A, B, C that occurs at all.

    Spelled-out grades are misread (INCORRECT holds a C); kept, because scores must equal the reference's. Without any
    letter the answer is `incorrect`.
    """
    lines = said.strip().split("\n")
    for candidate in (said.strip(), lines[-1].strip()):
        if candidate in _GRADES:
            return _GRADES[candidate]
    return _GRADES[ranked_label(said, list(_GRADES)) or "B"]


def _plain(text: str) -> str:
    text = _ARTICLES.sub(" ", text.lower().strip())
    return " ".join(_PUNCTUATION.sub("", text).split())
