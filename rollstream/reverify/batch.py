"""A batch of stored rollouts scored where it is called: in a process of the pool, or, pair by pair, in this one.

Owns the way from a stored rollout to its new line or failure line. Invariants: each pair of a batch leaves as exactly one
`Result`, whatever its verifier does; and texts stay in the files until the pair is worked on, so a batch travels in a few KB.
"""

from __future__ import annotations

import mmap
import time
from collections.abc import Awaitable, Mapping
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from environments.context import Context
from environments.dispatch import read_task, start_verify
from environments.environment import Environment
from environments.response import Response
from environments.verdict import Verdict
from rollstream.reverify.guard import Stamp
from rollstream.reverify.pairing import Pair
from schemas import jsontext
from schemas.errors import DataError, FailureClass, Outcome, RolloutError, VerifierError
from schemas.events import Failure
from schemas.identity import RolloutRef, is_id
from schemas.quick import quick
from schemas.rows import ATTEMPT_INDEX, PARAMS, ROLLOUT_ID
from services.runtime.chance import VERIFICATION, rng_of
from services.runtime.state import read_state
from services.sink.lines import Parts, failure_line
from services.verifier_worker.here import loop_here, registry_here
from services.verifier_worker.line import SCORING, result_line

if TYPE_CHECKING:  # a process of the pool has no use for it, nor for the model clients that it would import
    from services.verifier_worker.verifying import Subject

STAGE = "reverify"

SLICE_S = 1.0
"""A batch hands back what it has after this long, so that a slow verifier shows progress and a killed process loses little."""

_BARE = vars(Context())
"""A context without clients."""

_KEPT = (PARAMS, "ng_model_call_capture", "ng_agent_observations", "ng_trajectory", "_ng_token_capture")
"""Of a stored line, what the rollout and not the verifier has written (A7). What an agent adds besides cannot be told from an
old verifier's fields."""


@dataclass(frozen=True, slots=True)
class Source:
    """The files of the stored rollouts, the run they belong to, and the scoring that is made of them."""

    inputs: Path
    stored: Path
    run_id: str
    scoring: str
    data_dir: Path | None = None


class Result(NamedTuple):
    """What came of a pair: its line without line end; its reward, or None when it failed, with the class; the reward before."""

    line: bytes
    reward: float | None
    failure: str
    before: float | None


@quick
@dataclass(frozen=True, slots=True)
class Loaded:
    """A pair with its texts."""

    pair: Pair
    ref: RolloutRef
    row: Mapping[str, Any]
    stored: Mapping[str, Any]
    response: bytes

    @classmethod
    def of(cls, source: Source, pair: Pair) -> Loaded:
        """Read a pair. Raises `DataError` when a file has changed since it was indexed, `OSError` when it cannot be read."""
        try:
            row = jsontext.loads_lenient(read_text(source.inputs, pair.row_start, pair.row_size))
            stored = jsontext.loads_lenient(read_text(source.stored, pair.start, pair.size))
            response = jsontext.dumps(stored["response"])
        except (ValueError, KeyError, TypeError) as e:
            raise DataError(f"{source.stored}:{pair.number} or its row has changed since the command began: {e!r}") from e
        return cls(pair, _ref(source, pair, row, stored), row, stored, response)

    def subject(self, variant: str) -> Subject:
        """What a worker's verifier takes."""
        from services.verifier_worker.verifying import Subject

        return Subject(self.ref, variant, jsontext.dumps(self.row), self.response, b"")

    def scored(self, source: Source, stamp: Stamp, verdict: Verdict, beside: Mapping[str, Any] | None = None) -> Result:
        """The new line; raises `VerifierError` when the verdict makes none."""
        added = {k: self.stored[k] for k in _KEPT if k in self.stored}
        added[SCORING] = stamp.fragment(source.scoring, source.run_id, source.stored.name, self.pair.number)
        if beside:
            added |= beside
        line = result_line(self.ref, self.pair.agent or stamp.variant, self.row, self.response, verdict, added)
        return Result(line, verdict.reward, "", self.pair.reward)

    def failed(self, source: Source, stamp: Stamp, error: Exception) -> Result:
        """The failure line."""
        kind = error.failure_class if isinstance(error, RolloutError) else FailureClass.VERIFIER
        event = Failure(
            run_id=source.run_id,
            failure_class=str(kind),
            outcome=str(Outcome.FAILED),
            stage=STAGE,
            error_type=type(error).__name__,
            message=str(error) if isinstance(error, RolloutError) else repr(error),
            detail=error.detail if isinstance(error, RolloutError) else "",
            retryable=not isinstance(error, RolloutError) or error.retryable,
            failed_ms=int(time.time() * 1000),
            ref=self.ref,
            environment=stamp.variant,
            agent=self.pair.agent or stamp.variant,
            file=str(source.stored),
            line=self.pair.number,
        )
        line = failure_line(event, Parts(jsontext.dumps(self.row), self.response))
        return Result(line, None, str(kind), self.pair.reward)


def score_batch(source: Source, stamp: Stamp, pairs: list[tuple[Any, ...]]) -> list[tuple[Any, ...]]:
    """The results of the first of `pairs`: of all, or of as many as fit into `SLICE_S`. For a process of the pool.

    Pairs and results are plain tuples, which pickle in a fifth of the time. Environments
    are those that this process finds, with a context that has no clients.
    """
    environment = registry_here().binding(stamp.variant, None).environment
    until = time.monotonic() + SLICE_S
    results = []
    for pair in map(Pair._make, pairs):
        results.append(tuple(_score(source, stamp, environment, Loaded.of(source, pair))))
        if time.monotonic() >= until:
            break
    return results


def _score(source: Source, stamp: Stamp, environment: Environment, loaded: Loaded) -> Result:
    try:
        return loaded.scored(source, stamp, _verdict(source, environment, loaded))
    except RolloutError as e:
        return loaded.failed(source, stamp, e)
    except Exception as e:  # noqa: BLE001 - whatever a verifier raises costs its rollout
        return loaded.failed(source, stamp, VerifierError(f"{stamp.variant}: {e!r}"))


def _verdict(source: Source, environment: Environment, loaded: Loaded) -> Verdict:
    context = object.__new__(Context)  # as `Clients.context`: its `__init__` takes 6 µs
    own = {"rollout_id": loaded.ref.rollout_id, "make_rng": partial(rng_of, loaded.ref, VERIFICATION)}
    context.__dict__.update(_BARE, data_dir=source.data_dir, **own)
    task, state = read_task(environment, loaded.row), read_state(environment, b"")
    found = start_verify(environment, task, Response(loaded.stored["response"]), state, context)
    return found if isinstance(found, Verdict) else loop_here().run_until_complete(_verdict_of(found))


async def _verdict_of(found: Awaitable[Verdict]) -> Verdict:
    return await found


def _ref(source: Source, pair: Pair, row: Mapping[str, Any], stored: Mapping[str, Any]) -> RolloutRef:
    attempt, own = stored.get(ATTEMPT_INDEX, 0), stored.get(ROLLOUT_ID) or row.get(ROLLOUT_ID)
    explicit = own if isinstance(own, str) and is_id(own) else ""
    attempt = attempt if isinstance(attempt, int) else 0
    return RolloutRef(source.run_id, str(pair.task), pair.task, pair.rollout, attempt, 1, explicit)


def read_text(path: Path, start: int, size: int) -> bytes:
    """A line, without its end."""
    name = str(path)
    data = _open.get(name)
    if data is None or len(data) < start + size:  # a file may have grown since
        with path.open("rb") as file:
            data = _open[name] = mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ)
    return data[start : start + size].rstrip(b"\r\n")


_open: dict[str, mmap.mmap] = {}
"""Files stay open: a process reads a few, a line at a time."""


def forget_files() -> None:
    """Close what is open: the next command may find other files of these names."""
    _open.clear()
