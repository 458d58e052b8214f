"""How much of a reference a reply repeats, word by word. Invariant: the time is bounded by `MAX_WORDS`, not by the reply."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from pydantic import Field

from environments.environment import Context, Environment, Response, Reverify, Task, Verdict

MAX_WORDS = 1_000
"""The comparison takes time in the product of both lengths: about 0.1 s for a thousand words each."""


class ReferenceTask(Task):
    """`reference`: the text to come close to."""

    reference: str = Field(min_length=1, max_length=100_000)


class MyEnvironment(Environment):
    """Rewards a reply with the share of its words and the reference's that they have in common, in the same order."""

    Task = ReferenceTask
    reverify = Reverify.STATELESS
    cpu_heavy = True  # verified in a process of its own: the comparison holds the interpreter

    def verify(self, task: ReferenceTask, response: Response, state: Any, context: Context) -> Verdict:
        reply, reference = words(response.flat_text()), words(task.reference)
        common = longest_common(reference, reply)
        return Verdict(2 * common / max(1, len(reference) + len(reply)), words=len(reply), common_words=common)


def words(text: str) -> list[str]:
    """The first words of a text."""
    return text.split(maxsplit=MAX_WORDS)[:MAX_WORDS]


def longest_common(a: Sequence[str], b: Sequence[str]) -> int:
    """How many words the longest sequence has that both contain in this order, with others between them or not."""
    best = [0] * (len(b) + 1)  # best[j]: of the words of `a` so far and the first j of `b`
    for word in a:
        before = 0
        for j, other in enumerate(b, 1):
            before, best[j] = best[j], before + 1 if word == other else max(best[j], best[j - 1])
    return best[-1]
