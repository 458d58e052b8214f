"""Instructions about the words of an answer: keywords, letters, counts, language and casing, first and last words."""

from __future__ import annotations

import re
from itertools import pairwise
from typing import Any

from environments.common.instructions import Answer, InstructionError, in_relation, number, text_of, texts_of, whole
from environments.common.rule_sentences import rule_sentences
from environments.instruction_following.catalogue import KINDS

_LANGUAGES = "en es pt ar hi fr ru de ja it bn uk th ur ta te bg ko pl he fa vi ne sw kn mr gu pa ml fi"
LANGUAGES = frozenset(_LANGUAGES.split())
"""Codes that an answer's language may be asked for by."""

_LETTER = re.compile("[A-Za-z]")
_LOWER_WORD = re.compile(r"\b[a-z]+\b")
_STARS = re.compile(r"\s?\*\*\*\s?")
_PARTS = 3
_NOT_WORD = re.compile(r"[^\w\s]")


@KINDS.kind("keywords:existence")
def existence(answer: Answer, keywords: Any = None) -> bool:
    return all(answer.found(keyword) for keyword in texts_of("keywords", keywords))


@KINDS.kind("keywords:frequency", "keywords:word_count_different_numbers")
def frequency(answer: Answer, keyword: Any = None, frequency: Any = None, relation: Any = None) -> bool:
    count = len(answer.found(text_of("keyword", keyword).strip()))
    return in_relation(count, relation, number("frequency", frequency))


@KINDS.kind("keywords:word_once")
def word_once(answer: Answer, keyword: Any = None) -> bool:
    return len(answer.found(text_of("keyword", keyword).strip())) == 1


@KINDS.kind("keywords:forbidden_words")
def forbidden_words(answer: Answer, forbidden_words: Any = None) -> bool:
    return not any(answer.found(rf"\b{word}\b") for word in texts_of("forbidden_words", forbidden_words))


@KINDS.kind("keywords:exclude_word_harder")
def exclude_word_harder(answer: Answer, keyword: Any = None) -> bool:
    return f" {text_of('keyword', keyword).strip()} " not in answer.text


@KINDS.kind("keywords:letter_frequency", "letters:letter_counting2")
def letter_frequency(answer: Answer, letter: Any = None, let_frequency: Any = None, let_relation: Any = None) -> bool:
    if not _LETTER.fullmatch(text_of("letter", letter)):
        raise InstructionError(f"letter must be one of a to z, found {letter!r}")
    return in_relation(answer.text.lower().count(letter.lower()), let_relation, number("let_frequency", let_frequency))


@KINDS.kind("keywords:no_adjacent_consecutive")
def no_adjacent_consecutive(answer: Answer) -> bool:
    firsts = [ord(word[0].lower()) for word in answer.words]
    return all(second != first + 1 for first, second in pairwise(firsts))


@KINDS.kind("keywords:palindrome")
def palindrome(answer: Answer) -> bool:
    return any(word == word[::-1] for word in answer.words)


@KINDS.kind("keywords:keyword_specific_position")
def keyword_specific_position(answer: Answer, keyword: Any = None, n: Any = None, m: Any = None) -> bool:
    wanted = text_of("keyword", keyword[0] if isinstance(keyword, list) else keyword).strip()
    sentence, place = whole("n", n), whole("m", m)
    return answer.tokens_of(answer.rule_sentences[sentence - 1])[place - 1] == wanted


@KINDS.kind("keywords:start_end")
def start_end(answer: Answer) -> bool:
    tokens = answer.tokens
    return len(tokens) > 1 and tokens[0].lower() == tokens[-1].lower()


@KINDS.kind("letters:letter_counting")
def letter_counting(answer: Answer, N: Any = None, relation: Any = None) -> bool:  # noqa: N803 - the row's name
    return in_relation(len(_LETTER.findall(answer.text)), relation, number("N", N, least=1))


@KINDS.kind("count:lowercase_counting")
def lowercase_counting(answer: Answer, N: Any = None) -> bool:  # noqa: N803 - the row's name
    return len(_LOWER_WORD.findall(answer.text)) <= number("N", N, least=1)


@KINDS.kind("count:counting_composition")
def counting_composition(answer: Answer, n_sent: Any = None, n_words: Any = None) -> bool:
    number("n_sent", n_sent, least=1)
    number("n_words", n_words, least=1)
    parts = _STARS.split(answer.text)
    return len(parts) == _PARTS and all(_composed(answer, rule_sentences(part), n_sent, n_words) for part in parts)


def _composed(answer: Answer, sentences: list[str], count: float, words: float) -> bool:
    return len(sentences) == count and all(len(answer.tokens_of(s)) == words for s in sentences)


@KINDS.kind("count:count_unique")
def count_unique(answer: Answer) -> bool:
    return len(set(answer.tokens)) == len(answer.tokens)


@KINDS.kind("count:count_increment_word")
def count_increment_word(answer: Answer, keyword1: Any = None, keyword2: Any = None) -> bool:
    once, twice = (len(answer.found(text_of("keyword", keyword).strip())) for keyword in (keyword1, keyword2))
    return (once, twice) == (1, 2)


@KINDS.kind("language:response_language")
def response_language(answer: Answer, language: Any = None) -> bool:
    if text_of("language", language) not in LANGUAGES:
        raise InstructionError(f"language {language!r} is not one of {', '.join(sorted(LANGUAGES))}")
    return answer.language in (None, language)


@KINDS.kind("change_case:english_capital")
def english_capital(answer: Answer) -> bool:
    return answer.text.isupper() and answer.language in (None, "en")


@KINDS.kind("change_case:english_lowercase")
def english_lowercase(answer: Answer) -> bool:
    return answer.text.islower() and answer.language in (None, "en")


@KINDS.kind("change_case:capital_word_frequency")
def capital_word_frequency(answer: Answer, capital_frequency: Any = None, capital_relation: Any = None) -> bool:
    count = sum(token.isupper() for token in answer.tokens)
    return in_relation(count, capital_relation, number("capital_frequency", capital_frequency))


@KINDS.kind("first_word:first_word_sent")
def first_word_sent(answer: Answer, first_word: Any = None) -> bool:
    wanted = text_of("first_word", first_word).lower()
    return all(sentence.split()[0].lower() == wanted for sentence in answer.rule_sentences)


@KINDS.kind("first_word:first_word_answer")
def first_word_answer(answer: Answer, first_word: Any = None) -> bool:
    return answer.words[0].lower() == text_of("first_word", first_word).lower()


@KINDS.kind("last_word:last_word_sent")
def last_word_sent(answer: Answer, last_word: Any = None) -> bool:
    wanted = _wanted_last(last_word)
    return all(_bare(sentence.split()[-1]) == wanted for sentence in answer.rule_sentences)


@KINDS.kind("last_word:last_word_answer")
def last_word_answer(answer: Answer, last_word: Any = None) -> bool:
    return _bare(answer.words[-1]) == _wanted_last(last_word)


def _wanted_last(last_word: Any) -> str:
    return text_of("last_word", last_word[0] if isinstance(last_word, list) and last_word else last_word).lower()


def _bare(word: str) -> str:
    return _NOT_WORD.sub("", word).lower()
