"""The nearest word to one that is not known, as messages say it."""

from __future__ import annotations

import difflib
from collections.abc import Iterable

CUTOFF = 0.6
"""difflib's own; below it a guess is as likely to mislead as to help."""

SHOWN = 12
"""Words that are listed when none is near."""


def near_word(word: str, known: Iterable[str], cutoff: float = CUTOFF) -> str | None:
    """The known word that is most like `word`, if any is."""
    found = difflib.get_close_matches(word[:200], sorted(set(known)), n=1, cutoff=cutoff)
    return found[0] if found else None


def nearest(word: str, known: Iterable[str]) -> str:
    """`; did you mean 'X'?`, or what there is."""
    words = sorted(set(known))
    near = near_word(word, words)
    if near is not None:
        return f"; did you mean {near!r}?"
    more = f", … ({len(words)} in all)" if len(words) > SHOWN else ""
    return f" (there are: {', '.join(words[:SHOWN]) or 'none'}{more})"
