"""The topics of one re-verification of the log.

Invariant: a scoring reads the pipeline's `trajectories` and writes to topics of its own, with consumer groups of its own: the
live verifiers, sinks, trainers and the ledger never see it.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from rollstream.reverify.guard import ReverifyError
from schemas.identity import is_id
from schemas.topics import FAILURES, SCORED, Topics, TopicSpec, topic_config

_MAX_ID = 100
"""With prefix and topic, well within Kafka's 249 characters for a name."""


@dataclass(frozen=True, slots=True)
class ScoringTopics(Topics):
    """The pipeline's names, but `scored-rollouts.ID` and `failures.ID` for what the scoring `scoring` writes."""

    scoring: str = ""

    def name(self, spec: TopicSpec) -> str:
        """Full name of a topic."""
        base = Topics.name(self, spec)
        return f"{base}.{self.scoring}" if spec in (SCORED, FAILURES) else base

    def group(self, stage: str, scope: str = "") -> str:
        """Consumer group of a stage of the scoring."""
        return Topics.group(self, stage, ".".join(part for part in ("scoring", self.scoring, scope) if part))

    def declare(self) -> Iterator[tuple[str, int, dict[str, str]]]:
        """The two topics that are the scoring's own."""
        for spec in (SCORED, FAILURES):
            yield self.name(spec), self.partitions, topic_config(spec)


def scoring_topics(topics: Topics, scoring: str) -> ScoringTopics:
    """The topics of `scoring`; raises `ReverifyError` when that is no id."""
    if not is_id(scoring) or len(scoring) > _MAX_ID:
        raise ReverifyError(
            f"{scoring!r} cannot name a scoring: a letter or digit, then letters, digits, '.', '_' or '-', at most {_MAX_ID}"
        )
    return ScoringTopics(topics.prefix, topics.partitions, scoring)
