"""Instructions to repeat something: the request, a part of it, a phrase, or to answer twice."""

from __future__ import annotations

from typing import Any

from environments.common.instructions import Answer, number, text_of, whole
from environments.instruction_following.catalogue import KINDS

_DIVIDER = "******"
_RESPONSES = 2


@KINDS.kind("copy:copy", "copy:copying_simple")
def copy(answer: Answer, prompt_to_repeat: Any = None) -> bool:
    return _fold(answer.text) == _fold(text_of("prompt_to_repeat", prompt_to_repeat))


@KINDS.kind("copy:copying_multiple")
def copying_multiple(answer: Answer, prompt_to_repeat: Any = None, N: Any = None) -> bool:  # noqa: N803 - the row's name
    wanted = _fold(text_of("prompt_to_repeat", prompt_to_repeat))
    parts = answer.text.split(_DIVIDER)
    return len(parts) == number("N", N, least=1) and all(_fold(part) == wanted for part in parts)


@KINDS.kind("new:copy_span_idx")
def copy_span_idx(answer: Answer, prompt_to_repeat: Any = None, n_start: Any = None, n_end: Any = None) -> bool:
    start, end = whole("n_start", n_start), whole("n_end", n_end)
    return _fold(answer.text) == _fold(text_of("prompt_to_repeat", prompt_to_repeat)[start:end])


@KINDS.kind("copy:repeat_phrase")
def repeat_phrase(answer: Answer, phrase: Any = None, small_n: Any = None) -> bool:
    words = text_of("phrase", phrase).split()
    spans = [span.split() for span in answer.found(f"{words[0]} .*? {words[-1]}", 0)]
    if len(spans) != number("small_n", small_n, least=1) or any(len(span) != len(words) for span in spans):
        return False
    changes = [sum(a != b for a, b in zip(span, words, strict=True)) for span in spans]
    return max(changes) <= 1 and changes[-1] == 1


@KINDS.kind("combination:repeat_prompt")
def repeat_prompt(answer: Answer, prompt_to_repeat: Any = None) -> bool:
    return _fold(answer.text).startswith(_fold(text_of("prompt_to_repeat", prompt_to_repeat)))


@KINDS.kind("combination:two_responses")
def two_responses(answer: Answer) -> bool:
    parts = [part.strip() for part in answer.text.split(_DIVIDER)]
    filled = [part for part in parts if part]
    return all(parts[1:-1]) and len(filled) == _RESPONSES and filled[0] != filled[1]


def _fold(text: str) -> str:
    return text.strip().lower()
