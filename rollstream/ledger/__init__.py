"""The ledger: every dispatched rollout accounted for, computed from the topics."""

from rollstream.ledger.ledger import Counts, Ledger, Waiting
from rollstream.ledger.read import Marks, mark, read_ledger

__all__ = ["Counts", "Ledger", "Marks", "Waiting", "mark", "read_ledger"]
