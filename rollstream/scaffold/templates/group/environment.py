"""All replies to a task, ranked by their length. Invariant: the order of the members does not change their rewards."""

from __future__ import annotations

from collections.abc import Sequence

from pydantic import Field

from environments.environment import Context, Environment, Member, Reverify, Task, Verdict


class KeywordTask(Task):
    """`keywords`: a reply must contain all of them, without regard to case."""

    keywords: list[str] = Field(min_length=1)


class MyEnvironment(Environment):
    """Rewards the shortest reply that contains all keywords with 1.0, longer ones by their rank, all others with 0.0."""

    Task = KeywordTask
    scoring = "group"
    reverify = Reverify.STATELESS

    def verify_group(self, members: Sequence[Member], context: Context) -> list[Verdict]:
        texts = [m.response.flat_text().strip() for m in members]
        complete = [all(k.casefold() in t.casefold() for k in m.task.keywords) for m, t in zip(members, texts, strict=True)]
        lengths = [len(t) for t, good in zip(texts, complete, strict=True) if good]
        return [
            Verdict(share_beaten(len(t), lengths) if good else 0.0, complete=good, length=len(t))
            for t, good in zip(texts, complete, strict=True)
        ]


def share_beaten(length: int, lengths: Sequence[int]) -> float:
    """1 for the shortest, 1/2 for the next length, 1/3 for the one after it, and so on."""
    return 1.0 / (1 + len({other for other in lengths if other < length}))
