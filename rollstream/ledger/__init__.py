"""The ledger: every dispatched rollout accounted for, computed from the topics. Read `book` for the rules."""

from rollstream.ledger.lag import StageLag, stage_lag
from rollstream.ledger.ledger import Counts, Ledger, Waiting
from rollstream.ledger.read import mark, read_ledger
from rollstream.ledger.reader import Marks

__all__ = ["Counts", "Ledger", "Marks", "StageLag", "Waiting", "mark", "read_ledger", "stage_lag"]
