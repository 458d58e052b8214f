"""Instructions about the shape of an answer: lengths, paragraphs, lists, marks, brackets, quotes.

Spans and list lines are found by walking the text once. The patterns that define them (given beside each) take time that
grows with the square of the answer: for a megabyte of brackets, days.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable
from typing import Any

from environments.common.instructions import Answer, in_relation, number, text_of, whole
from environments.common.rule_sentences import rule_sentences
from environments.instruction_following.catalogue import KINDS

_WORD = re.compile(r"\w+")
_STARS = re.compile(r"\s?\*\*\*\s?")
_SOLID = re.compile(r"\S")
_SINGLE = re.compile(r"\*[^\n*]*\*")
_DOUBLE = re.compile(r"\*\*[^\n*]*\*\*")
_FIRST_WORD_END = re.compile(r"[.,?!'\"]")
_POSTSCRIPTS = {"P.S.": r"p\.\s?s\.", "P.P.S": r"p\.\s?p\.\s?s"}
_PARAGRAPHS = 2
_RESPONSES = ("My answer is yes.", "My answer is no.", "My answer is maybe.")
_FENCES = ("```json", "```Json", "```JSON", "```")


@KINDS.kind("length_constraints:number_words")
def number_words(answer: Answer, num_words: Any = None, relation: Any = None) -> bool:
    return in_relation(len(_WORD.findall(answer.text)), relation, number("num_words", num_words))


@KINDS.kind("length_constraints:number_sentences")
def number_sentences(answer: Answer, num_sentences: Any = None, relation: Any = None) -> bool:
    return in_relation(len(answer.punkt_sentences), relation, number("num_sentences", num_sentences))


@KINDS.kind("length_constraints:number_paragraphs")
def number_paragraphs(answer: Answer, num_paragraphs: Any = None) -> bool:
    return _filled(_STARS.split(answer.text)) == number("num_paragraphs", num_paragraphs)


@KINDS.kind("length_constraints:nth_paragraph_first_word")
def nth_paragraph_first_word(
    answer: Answer, num_paragraphs: Any = None, nth_paragraph: Any = None, first_word: Any = None
) -> bool:
    nth, wanted = whole("nth_paragraph", nth_paragraph), text_of("first_word", first_word).lower()
    parts = answer.text.split("\n\n")
    if sum(bool(part.strip()) for part in parts) != number("num_paragraphs", num_paragraphs, least=nth):
        return False
    word = parts[nth - 1].split()[0].lstrip("'").lstrip('"').lower()
    return _FIRST_WORD_END.split(word, maxsplit=1)[0] == wanted


@KINDS.kind("paragraphs:paragraphs")
def paragraphs(answer: Answer) -> bool:
    return _filled(_STARS.split(answer.text)) == _PARAGRAPHS


@KINDS.kind("paragraphs:paragraphs2")
def paragraphs2(answer: Answer) -> bool:
    return _filled(answer.text.split("\n\n")) == _PARAGRAPHS


def _filled(parts: list[str]) -> int | None:
    """How many parts there are, without blank ones at the ends; None when one between others is blank."""
    blank = [not part.strip() for part in parts]
    return None if any(blank[1:-1]) else len(parts) - sum(blank)


@KINDS.kind("detectable_content:number_placeholders")
def number_placeholders(answer: Answer, num_placeholders: Any = None) -> bool:
    return sum(map(_brackets, answer.text.split("\n"))) >= number("num_placeholders", num_placeholders)


def _brackets(line: str) -> int:
    r"""How often `\[.*?\]` matches in a line."""
    count, end = 0, 0
    while (start := line.find("[", end)) >= 0 and (close := line.find("]", start)) >= 0:
        count, end = count + 1, close + 1
    return count


@KINDS.kind("detectable_content:postscript")
def postscript(answer: Answer, postscript_marker: Any = None) -> bool:
    marker = text_of("postscript_marker", postscript_marker).strip()
    return bool(answer.found(_POSTSCRIPTS.get(marker, marker.lower()), 0, within=answer.text.lower()))


@KINDS.kind("detectable_format:number_bullet_lists")
def number_bullet_lists(answer: Answer, num_bullets: Any = None) -> bool:
    return star_lines(answer.text) + dash_lines(answer.text) == number("num_bullets", num_bullets)


def star_lines(text: str) -> int:
    r"""How often `^\s*\*[^*].*$` matches (line by line, though the white space and what follows the star may be line feeds)."""
    count, start = 0, 0
    while found := _SOLID.search(text, start):
        at = found.start()
        if text[at] == "*" and text[at + 1 : at + 2] not in ("", "*"):
            count, at = count + 1, at + 2
        end = text.find("\n", at)
        if end < 0:
            break
        start = end if text[end - 1] == "\n" else end + 1  # after a star and a line feed the match may end on an empty line
    return count


def dash_lines(text: str) -> int:
    r"""How often `^\s*-.*$` matches, line by line."""
    return sum(line.lstrip().startswith("-") for line in text.split("\n"))


@KINDS.kind("detectable_format:number_highlighted_sections")
def number_highlighted_sections(answer: Answer, num_highlights: Any = None) -> bool:
    spans = (*_SINGLE.findall(answer.text), *_DOUBLE.findall(answer.text))
    return sum(bool(span.strip("*").strip()) for span in spans) >= number("num_highlights", num_highlights)


@KINDS.kind("detectable_format:multiple_sections")
def multiple_sections(answer: Answer, section_spliter: Any = None, num_sections: Any = None) -> bool:
    heading = rf"\s?{text_of('section_spliter', section_spliter).strip()}\s?\d+\s?"
    return len(answer.found(heading, 0)) >= number("num_sections", num_sections)


@KINDS.kind("detectable_format:constrained_response")
def constrained_response(answer: Answer) -> bool:
    return any(response in answer.text for response in _RESPONSES)


@KINDS.kind("detectable_format:json_format")
def json_format(answer: Answer) -> bool:
    text = answer.text.strip()
    for fence in _FENCES:
        text = text.removeprefix(fence)
    json.loads(text.removesuffix("```").strip())
    return True


@KINDS.kind("detectable_format:title")
def title(answer: Answer) -> bool:
    return any(map(_has_title, answer.text.split("\n")))


def _has_title(line: str) -> bool:
    """Whether the longest span `<<.+>>` of a line holds more than brackets and blanks."""
    start = line.find("<<")
    end = line.rfind(">>", start + 3)
    return start >= 0 and end >= 0 and bool(line[start : end + 2].lstrip("<").rstrip(">").strip())


@KINDS.kind("detectable_format:sentence_hyphens")
def sentence_hyphens(answer: Answer) -> bool:
    parts = answer.text.split("-")
    sentences = rule_sentences(answer.text.replace("-", " "))
    return all(part == sentence for part, sentence in zip(parts, sentences, strict=False))


@KINDS.kind("detectable_format:square_brackets")
def square_brackets(answer: Answer) -> bool:
    return all(word[0] == "[" and word[-1] == "]" for word in answer.words)


@KINDS.kind("detectable_format:bigram_wrapping")
def bigram_wrapping(answer: Answer) -> bool:
    words = answer.words
    pairs = zip(words[::2], words[1::2], strict=False)
    return all(first.startswith("<<") and second.endswith(">>") for first, second in pairs)


@KINDS.kind("startend:quotation")
def quotation(answer: Answer) -> bool:
    text = answer.text.strip()
    return len(text) > 1 and text[0] == text[-1] == '"'


@KINDS.kind("startend:end_checker")
def end_checker(answer: Answer, end_phrase: Any = None) -> bool:
    return answer.text.strip().strip('"').lower().endswith(text_of("end_phrase", end_phrase).strip().lower())


@KINDS.kind("punctuation:no_comma")
def no_comma(answer: Answer) -> bool:
    return _none_of(answer, ",")


@KINDS.kind("punctuation:punctuation_dot")
def no_dot(answer: Answer) -> bool:
    return _none_of(answer, ".")


@KINDS.kind("punctuation:punctuation_exclamation")
def no_exclamation(answer: Answer) -> bool:
    return _none_of(answer, "!")


def _none_of(answer: Answer, marks: Iterable[str]) -> bool:
    return not any(mark in answer.text for mark in marks)
