"""What users import and run: the command line, the one-process runner, the producer of prompts, the trainer client.

    from rollstream import Connection, PromptProducer, ScoredRollouts, read_ledger

Names are imported when they are first used, so `import rollstream` costs nothing.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from rollstream.ledger import Ledger, mark, read_ledger, stage_lag
    from rollstream.producer import PromptProducer
    from rollstream.scored import ScoredRollout
    from rollstream.settings import Settings
    from rollstream.trainer import ScoredRollouts
    from schemas.topics import Topics
    from services.runtime.connection import Connection

_HOMES = {
    "Connection": "services.runtime.connection",
    "Ledger": "rollstream.ledger",
    "PromptProducer": "rollstream.producer",
    "ScoredRollout": "rollstream.scored",
    "ScoredRollouts": "rollstream.trainer",
    "Settings": "rollstream.settings",
    "Topics": "schemas.topics",
    "mark": "rollstream.ledger",
    "read_ledger": "rollstream.ledger",
    "stage_lag": "rollstream.ledger",
}

__all__ = [
    "Connection",
    "Ledger",
    "PromptProducer",
    "ScoredRollout",
    "ScoredRollouts",
    "Settings",
    "Topics",
    "mark",
    "read_ledger",
    "stage_lag",
]


def __getattr__(name: str) -> Any:
    if name not in _HOMES:
        raise AttributeError(f"module 'rollstream' has no attribute {name!r}")
    return getattr(import_module(_HOMES[name]), name)
