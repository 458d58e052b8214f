"""Which verdict a judge's text gives: the rules by which labels are searched (judge.md §3).

All of them search plain, case-sensitive substrings and take None (a reply that could not be read) for a text without
labels. Empty labels are never found. Invariant: time is linear in the text.
"""

from __future__ import annotations

from collections.abc import Sequence

TAIL = 200
"""Characters at the end in which a judge is expected to give its verdict (terminus_judge)."""


def first_label(text: str | None, labels: Sequence[str]) -> str | None:
    """The label that begins first; of two that begin together, the longer."""
    found = [(at, -len(label), label) for label in labels if label and (at := (text or "").find(label)) >= 0]
    return min(found)[2] if found else None


def last_label(text: str | None, labels: Sequence[str]) -> str | None:
    """The label that begins last; of two that begin together, the longer."""
    found = [(at, len(label), label) for label in labels if label and (at := (text or "").rfind(label)) >= 0]
    return max(found)[2] if found else None


def closing_label(text: str | None, labels: Sequence[str], *, tail: int = TAIL) -> str | None:
    """The last label within the last `tail` characters; when there is none, the first in the whole text."""
    return last_label((text or "")[-tail:], labels) or first_label(text, labels)


def ranked_label(text: str | None, labels: Sequence[str]) -> str | None:
    """The first of `labels`, in their order, that occurs anywhere."""
    return next((label for label in labels if label and label in (text or "")), None)


def agreed_label(text: str | None, labels: Sequence[str]) -> str | None:
    """The only label that occurs, however often; None when different ones do."""
    found = {label for label in labels if label and label in (text or "")}
    return found.pop() if len(found) == 1 else None
