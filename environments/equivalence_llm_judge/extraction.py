"""What is compared: the question in the request, the answer in the response, the part of either that a pattern cuts out.

Invariant: there is always something to compare. A pattern that does not compile, matches nothing or takes too long leaves the
whole text.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

from environments.common.request import text_of, user_contents
from environments.common.searches import SearchTimeoutError, compiled, last_match
from environments.response import Response, is_assistant_message

TIME_LIMIT_S = 0.5
"""CPU time of one search; an ordinary pattern takes 10 to 50 ms on a megabyte."""


def question_of(params: Mapping[str, Any]) -> str:
    """Text of the last user message that has any, stripped; empty when the input is a plain string."""
    texts = [text for content in user_contents(params) if (text := text_of(content))]
    return texts[-1].strip() if texts else ""


def answer_of(response: Response) -> str:
    """Text of the last assistant message, stripped; earlier ones never stand in for it."""
    messages = [item for item in response.output if is_assistant_message(item)]
    return (text_of(messages[-1].get("content")) or "").strip() if messages else ""


def cut(source: str | None, text: str) -> str:
    """What the last match of the pattern `source` gives: its first group that is not blank, else all of it, stripped."""
    pattern = compiled(source, re.MULTILINE | re.DOTALL) if source else None
    if pattern is None:
        return text
    try:
        found = last_match(pattern, text, TIME_LIMIT_S)
    except SearchTimeoutError:
        return text
    if found is None:
        return text
    groups = [group.strip() for group in found.groups() if group]
    cut_out: str = next((group for group in groups if group), found[0].strip())
    return cut_out
