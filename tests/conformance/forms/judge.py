"""`judge` and `judge_*`: a scripted judge under every model's name, and what it was asked (judge.md §10).

Entries are served in the order of the calls. Where calls run at the same time, entries carry `verifier` (the name of a check)
or `pair` (indexes of the two answers compared); they go to the calls whose purpose (`Judge.ask(purpose=…)`) is that name, or
"0,1" for the pair [0, 1].
"""

from __future__ import annotations

import itertools
import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from environments.common.judging import purpose
from environments.context import Context, ModelClient
from environments.response import Response
from environments.testing import EnvironmentHarness, response
from schemas.errors import JudgeError
from services.models.reply import parse
from tests.conformance.cases import Case
from tests.conformance.forms.form import Form, Outcome

_FORMS = ("reply", "output", "raw", "status", "http_status", "raise", "error")
_BESIDE = frozenset({"body", "verifier", "pair"})
_OK = 200


@dataclass(frozen=True)
class Call:
    """One call that was made."""

    purpose: str
    params: Mapping[str, Any]

    @property
    def prompt(self) -> str:
        """Everything that the judge reads, messages and metadata."""
        items = self.params.get("input")
        texts = [items] if isinstance(items, str) else [t for i in items or () for t in _texts(i.get("content"))]
        return "\n".join([*texts, *map(str, (self.params.get("metadata") or {}).values())])


class ScriptedJudge:
    """Answers each call with the next entry that is meant for it and keeps what was asked."""

    def __init__(self, entries: Sequence[Mapping[str, Any]] | None) -> None:
        self._away = entries is None  # a case that counts calls and scripts none has a judge that cannot be reached
        self.calls: list[Call] = []
        self._left = list(entries or ())

    async def create(self, params: Mapping[str, Any], asked_for: str | None = None) -> Response:
        """`asked_for` stands for the call's purpose where a form has another name for it."""
        call = Call(purpose() if asked_for is None else asked_for, params)
        self.calls.append(call)
        if self._away:
            raise JudgeError("there is no judge")
        entry = next((e for e in self._left if _addressee(e) in ("", call.purpose)), None)
        assert entry is not None, f"the script has no reply for call {len(self.calls)} (purpose {call.purpose!r})"
        self._left.remove(entry)
        return answer(entry)


class Everyone(dict[str, ModelClient]):
    """Models by name: those of the context, and the judge under every other name."""

    def __init__(self, judge: ScriptedJudge, own: Mapping[str, ModelClient]) -> None:
        super().__init__(own)
        self.judge = judge

    def get(self, name: str, default: Any = None) -> Any:
        return super().get(name, self.judge)


def answer(entry: Mapping[str, Any]) -> Response:
    """What a call gets from an entry; raises `JudgeError` where the call fails."""
    if "reply" in entry:
        return Response(response(entry["reply"]))
    if "output" in entry:
        return Response(response(*entry["output"]))
    if "raise" in entry or "error" in entry:
        raise JudgeError(f"the call died: {entry.get('raise', entry.get('error'))}")
    if "raw" in entry:
        return _read(json.dumps(entry["raw"]))
    status, body = entry.get("status", entry.get("http_status")), entry.get("body", "")
    if status != _OK:
        raise JudgeError(f"the judge answered {status}", detail=body)
    return _read(body)


class Judge(Form):
    """Gives the environment the scripted judge and compares what it was asked."""

    keys = frozenset(
        {"judge", "judge_calls", "judge_inputs", "judge_verdicts", "judge_prompt_contains", "judge_prompt_lacks", "judge_pairs"}
    )
    expected_keys = frozenset({"judge_calls"})

    def obstacle(self, case: Case) -> str | None:
        entries = case.data.get("judge") or ()
        unknown = sorted({k for entry in entries for k in entry} - {*_FORMS, *_BESIDE})
        return f"judge entries with {', '.join(unknown)}" if unknown else None

    def context(self, case: Case, context: Context) -> Context:
        if not (self.keys & case.data.keys() or "judge_calls" in case.expected):
            return context
        return replace(context, models=Everyone(ScriptedJudge(case.data.get("judge")), context.models))

    def check(self, case: Case, harness: EnvironmentHarness, outcome: Outcome) -> list[str]:
        if not isinstance(harness.context.models, Everyone):
            return []
        calls = harness.context.models.judge.calls
        return [*_count(case, calls), *_inputs(case, calls), *_words(case, calls), *_verdicts(case, outcome)]


def _count(case: Case, calls: Sequence[Call]) -> Iterator[str]:
    wanted = case.data.get("judge_calls", case.expected.get("judge_calls"))
    if wanted is not None and wanted != len(calls):
        yield f"expected {wanted} judge calls, found {len(calls)}"


def _inputs(case: Case, calls: Sequence[Call]) -> Iterator[str]:
    """Every inserted value is in its prompt, and values that were exchanged have changed places."""
    inputs = case.data.get("judge_inputs")
    if inputs is None:
        return
    if len(inputs) != len(calls):
        yield f"judge_inputs: expected {len(inputs)} calls, found {len(calls)}"
    for i, (values, call) in enumerate(zip(inputs, calls, strict=False)):
        for name, value in values.items():
            if value is not None and str(value) not in call.prompt:
                yield f"judge_inputs.{i}.{name}: {value!r} is not in the prompt {call.prompt!r}"
    for (i, one), (j, other) in itertools.combinations(enumerate(zip(inputs, calls, strict=False)), 2):
        yield from (f"judge_inputs.{i}/{j}: {line}" for line in _exchanged(one, other))


_Asked = tuple[Mapping[str, Any], Call]


def _exchanged(one: _Asked, other: _Asked) -> Iterator[str]:
    (before, first), (after, second) = one, other
    if before != after and first.prompt == second.prompt:
        yield "different values, the same prompt"
    for a, b in itertools.combinations(before, 2):
        x, y = str(before[a]), str(before[b])
        told_apart = all(p.count(v) == 1 for p in (first.prompt, second.prompt) for v in (x, y))
        if not told_apart or (str(after.get(a)), str(after.get(b))) != (y, x):
            continue
        if (first.prompt.index(x) < first.prompt.index(y)) == (second.prompt.index(x) < second.prompt.index(y)):
            yield f"{a} and {b} were to be exchanged and stand in the same order"


def _words(case: Case, calls: Sequence[Call]) -> Iterator[str]:
    for i, call in enumerate(calls):
        yield from (
            f"call {i}: {w!r} is not in the prompt"
            for w in case.data.get("judge_prompt_contains") or ()
            if w not in call.prompt
        )
        yield from (f"call {i}: {w!r} is in the prompt" for w in case.data.get("judge_prompt_lacks") or () if w in call.prompt)


def _verdicts(case: Case, outcome: Outcome) -> Iterator[str]:
    """The labels of `judge_evaluations`, where the result has them."""
    wanted, found = case.data.get("judge_verdicts"), outcome.fields.get("judge_evaluations")
    if wanted is not None and isinstance(found, list):
        labels = [entry.get("verdict_label") for entry in found]
        if labels != wanted:
            yield f"judge_verdicts: expected {wanted!r}, found {labels!r}"
    elif wanted:
        yield f"judge_verdicts: the result has no judge_evaluations to compare {wanted!r} with"


def _addressee(entry: Mapping[str, Any]) -> str:
    pair = entry.get("pair")
    return ",".join(map(str, pair)) if pair is not None else entry.get("verifier", "")


def _read(body: str) -> Response:
    value, wrong = parse(body.encode())
    if wrong:
        raise JudgeError(wrong, detail=body)
    return Response(value)


def _texts(content: Any) -> Iterator[str]:
    if isinstance(content, str):
        yield content
    for part in content if isinstance(content, list) else ():
        if isinstance(part, Mapping) and isinstance(part.get("text"), str):
            yield part["text"]
