"""The last `Answer:` line of a reply against the expected answer. Invariant: the time is linear in the reply's length."""

from __future__ import annotations

from typing import Any

from environments.environment import Context, Environment, Response, Reverify, Scores, Task, Verdict


class AnswerTask(Task):
    """`expected_answer`: compared without regard to case, surrounding blanks and a final full stop."""

    expected_answer: str


class MyEnvironment(Environment):
    """Rewards the expected answer with 1.0, anything else with 0.0."""

    Task = AnswerTask
    reverify = Reverify.STATELESS
    metrics = Scores(answer="extracted_answer")

    def verify(self, task: AnswerTask, response: Response, state: Any, context: Context) -> Verdict:
        answer = extract(response.flat_text())
        right = answer is not None and plain(answer) == plain(task.expected_answer)
        return Verdict(float(right), extracted_answer=answer)


def extract(text: str) -> str | None:
    """What stands behind the last `Answer:` on its line; None when there is nothing."""
    _, found, rest = text.rpartition("Answer:")
    line = rest.partition("\n")[0].strip()
    return line if found and line else None


def plain(answer: str) -> str:
    """An answer as it is compared."""
    return answer.strip().removesuffix(".").casefold()
