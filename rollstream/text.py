r"""Untrusted text made fit for a terminal.

Invariant: what `printable` returns moves no cursor, sets no colour or title, and cannot reorder what stands around it:
control characters, escape sequences, bidirectional overrides and lone surrogates are shown as escapes (`\x1b`).
"""

from __future__ import annotations

import unicodedata

_HIDDEN = frozenset({"Cc", "Cf", "Cs", "Co", "Cn", "Zl", "Zp"})
"""Unicode categories with no glyph of their own: controls, formats (bidirectional marks), surrogates, line separators."""


def printable(text: str, limit: int | None = None) -> str:
    """`text` on one line with whatever has no glyph escaped, cut to `limit` characters with an ellipsis."""
    if limit is not None and len(text) > limit:
        text = text[: limit - 1] + "…"
    if text.isascii() and text.isprintable():
        return text
    return "".join(_shown(c) for c in text)


def _shown(c: str) -> str:
    if c.isprintable() and unicodedata.category(c) not in _HIDDEN:
        return c
    code = ord(c)
    return f"\\x{code:02x}" if code < 0x100 else f"\\u{code:04x}" if code < 0x10000 else f"\\U{code:08x}"  # noqa: PLR2004
