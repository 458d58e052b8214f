"""What the scripted server says as a judge: a verdict that the prompt asks for, picked by a hash.

Prompts of judges end with their labels in one of three forms (docs/judging.md): labels in double brackets, "one of" before
labels in backticks, or lines to fill in with yes or no. Invariant: a reply holds one label, or one word for each line.
"""

from __future__ import annotations

import re

NOTICE = "Picked by a hash, not by thought."

_BRACKETED = re.compile(r"\[\[[^\[\]\n]{1,40}\]\]")
_ONE_OF = re.compile(r"\bone of:?\s+(`[^`\n]{1,60}`(?:(?:,| or|, or)\s+`[^`\n]{1,60}`)+)")
_TICKED = re.compile(r"`([^`\n]{1,60})`")
_TO_FILL_IN = re.compile(r"^([^\n:]{1,60}): yes/no[ \t]*$", re.MULTILINE)

_LOOKED_AT = 8_192
"""Labels stand at the end of a prompt; what comes before may be a megabyte that somebody else wrote."""

_LAST_LABELS = 8
"""Labels at the end to choose from; the examples of a prompt may show others."""


def verdict(prompt: str, digest: bytes) -> str | None:
    """The reply of a judge to `prompt`; None when it asks for no verdict."""
    end = prompt[-_LOOKED_AT:]
    lines = _TO_FILL_IN.findall(end)
    if lines:
        return "\n".join(f"{name}: {'yes' if digest[i % len(digest)] & 1 else 'no'}" for i, name in enumerate(lines))
    labels = _labels(end)
    return f"{NOTICE}\n{labels[digest[13] % len(labels)]}" if labels else None


def _labels(text: str) -> list[str]:
    choices = _ONE_OF.findall(text)
    if choices:
        return _TICKED.findall(choices[-1])
    last_line = next((line for line in reversed(text.splitlines()) if _BRACKETED.search(line)), "")
    return sorted(set(_BRACKETED.findall(last_line)[-_LAST_LABELS:]))
