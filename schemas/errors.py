"""The closed taxonomy of failures.

Owns every class of failure that may end a rollout, and the exceptions that carry one. Invariant: code that gives up on
a rollout raises a `RolloutError`; whatever else escapes a step is a defect of that stage and is recorded with the
stage's own class, so a failure is never a silent reward of 0.
"""

from __future__ import annotations

from enum import StrEnum


class FailureClass(StrEnum):
    """Why a rollout or a message ended without a score (platform.md A9)."""

    INFRASTRUCTURE = "infrastructure"
    MODEL = "model"
    TOOL = "tool"
    VERIFIER = "verifier"
    JUDGE = "judge_failed"  # the reference's word, which its users' scripts look for
    DATA = "data"
    TIMEOUT = "timeout"
    CANCELLED = "cancelled"
    CAPACITY = "capacity"


class Outcome(StrEnum):
    """How a dispatched rollout ended, as the ledger counts it.

    The last two are recorded and never counted: they end a message, not a rollout.
    """

    SCORED = "scored"
    FAILED = "failed"
    CANCELLED = "cancelled"
    EXPIRED = "expired"
    DUPLICATE = "duplicate"
    SUPERSEDED = "superseded"


class RolloutError(Exception):
    """Ends one rollout (or one message) and nothing else.

    `retryable` says whether another attempt of the same rollout could succeed; `detail` is what the other side said,
    already masked.
    """

    failure_class = FailureClass.INFRASTRUCTURE
    outcome = Outcome.FAILED
    retryable = True

    def __init__(self, message: str, *, detail: str = "", retryable: bool | None = None) -> None:
        super().__init__(message)
        self.detail = detail
        if retryable is not None:
            self.retryable = retryable


class InfrastructureError(RolloutError):
    """A service this worker needs could not be reached, or broke in a way that says nothing about the rollout."""


class ModelError(RolloutError):
    """The model endpoint refused, answered garbage, or failed past the retry budget."""

    failure_class = FailureClass.MODEL


class ToolError(RolloutError):
    """A tool raised. The model is not told: its session may be broken."""

    failure_class = FailureClass.TOOL


class SessionEnded(ToolError):
    """The code of a live session ended it (an exit, a crash, its memory); the next `Sessions.get` starts a new one."""


class VerifierError(RolloutError):
    """A verifier raised, or returned something that is not a verdict."""

    failure_class = FailureClass.VERIFIER


class JudgeError(RolloutError):
    """The call to a judge failed. The rollout can be judged again later (platform.md D10)."""

    failure_class = FailureClass.JUDGE


class DataError(RolloutError):
    """The row or message itself is wrong; doing it again changes nothing."""

    failure_class = FailureClass.DATA
    retryable = False


class RolloutTimeout(RolloutError):
    """A deadline passed while the rollout was being worked on."""

    failure_class = FailureClass.TIMEOUT


class RolloutExpired(RolloutError):
    """The rollout's deadline had passed before a worker could take it up."""

    failure_class = FailureClass.TIMEOUT
    outcome = Outcome.EXPIRED


class RolloutCancelled(RolloutError):
    """The run was cancelled."""

    failure_class = FailureClass.CANCELLED
    outcome = Outcome.CANCELLED
    retryable = False


class CapacityError(RolloutError):
    """A bound was reached that waiting would not have helped (size of a record, steps of an agent, a full pool)."""

    failure_class = FailureClass.CAPACITY


class DuplicateError(RolloutError):
    """The same rollout was dispatched, or arrived scored, a second time; the first counts."""

    failure_class = FailureClass.DATA
    outcome = Outcome.DUPLICATE
    retryable = False
