"""Secrets out of whatever is shown.

Invariant: text that leaves this package for a log, an error or a failure record has gone through a `Masker`, and it is
cut only after masking, so no part of a secret survives at the cut.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable
from urllib.parse import quote

MASK = "***"

EXCERPT_CHARS = 500
"""Enough to recognise an error; a failure record holds one excerpt per failure."""

_WINDOW_CHARS = 8 * EXCERPT_CHARS
"""Masking works on this much of a body: a reply may have megabytes."""

_MIN_SECRET = 4
"""Shorter values are not secrets but words such as `on` and `1`, whose masking would garble every text."""

_TOKENS = re.compile(r"(?i)(?<=bearer )[^\s\"',;]{4,}|\b(?:sk|hf|nvapi|gsk|xai)[-_][A-Za-z0-9_\-]{8,}")
"""Keys of others that a server may echo: bearer tokens and the prefixes that providers give their keys."""


class Masker:
    """Replaces known secrets, and what looks like one, by `***`."""

    __slots__ = ("_longest", "_secrets")

    def __init__(self, secrets: Iterable[str] = ()) -> None:
        forms = {form for secret in secrets for form in _forms(secret) if len(form) >= _MIN_SECRET}
        # Longest first: a secret that is part of another must not leave the other's rest behind.
        self._secrets = sorted(forms, key=len, reverse=True)
        self._longest = len(self._secrets[0]) if self._secrets else 0

    def mask(self, text: str) -> str:
        """`text` with every secret replaced."""
        for secret in self._secrets:
            text = text.replace(secret, MASK)
        return _TOKENS.sub(MASK, text)

    def excerpt(self, body: bytes | str, limit: int = EXCERPT_CHARS) -> str:
        """The beginning of `body` on one line, masked, at most `limit` characters."""
        window = _WINDOW_CHARS + self._longest
        text = body[: 4 * window].decode("utf-8", "replace") if isinstance(body, bytes) else body
        shown = self.mask(text[:window])
        if len(text) > window:
            # The window may have cut a secret in two, which is then not recognised: do not show that end.
            shown = shown[: -max(self._longest, EXCERPT_CHARS)]
        line = " ".join("".join(c if c.isprintable() else " " for c in shown).split())
        return line if len(line) <= limit else f"{line[: limit - 1]}…"


def _forms(secret: str) -> set[str]:
    """The secret as it may appear: plain, in JSON, in a URL, and without its scheme (`Bearer x` → `x`)."""
    bare = secret.split(" ", 1)[-1]
    return {form for s in (secret, bare) for form in (s, json.dumps(s)[1:-1], quote(s, safe=""))}
