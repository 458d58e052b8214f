"""Keeping the account: prompts first, then ends.

Owns the rules by which records become counts. A rollout is known by the 64-bit hash of its run and id (A8, so the attempt
is part of it): ten million fit in memory where their names would not, and any two of a million collide with odds of 1 in
37 million. Invariant: a record is entered only below the offsets that `read` noted, ends' before prompts'; an end is
therefore never entered without the prompt that it answers, and what was dispatched meanwhile is in flight.
"""

from __future__ import annotations

import zlib
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field

import aiokafka

from rollstream.ledger.keys import Keys, key_of, keys_of, scored_identity
from rollstream.ledger.ledger import Counts, Ledger, Waiting
from schemas import codec, headers
from schemas.errors import DataError, Outcome
from schemas.events import Failure
from schemas.identity import DEFAULT_RUN, Place
from schemas.prompts import read_prompt
from schemas.rows import agent_name

Record = aiokafka.ConsumerRecord[bytes, bytes]

Naming = Callable[[str, str], str]
"""From the environment and the agent that a prompt names (or "") to the environment's name."""

SAMPLES = 5
"""Ids named in a complaint; more would not be read."""

NO_ENVIRONMENT = "(none)"
"""Where messages are counted that never got as far as an environment."""

_BESIDE = frozenset({Outcome.DUPLICATE, Outcome.SUPERSEDED})


@dataclass(frozen=True, slots=True)
class _End:
    outcome: str
    failure_class: str
    environment: str


@dataclass(frozen=True, slots=True)
class _Prompted:
    """What the rollouts of one prompt have in common, and their keys. Names are as the prompt has them, or empty."""

    environment: str
    agent: str
    timestamp_ms: int
    place: str
    keys: tuple[int, ...]


@dataclass(slots=True)
class _Samples:
    """A count, and the first few of what was counted."""

    count: int = 0
    first: list[str] = field(default_factory=list)

    def add(self, name: str) -> None:
        self.count += 1
        if len(self.first) < SAMPLES:
            self.first.append(name)


class Book:
    """Accumulates records of one run (`run` None: all) and closes into a `Ledger`.

    `at_least_once`: a second, equal end of an attempt is a repeat, which that mode allows; it is counted beside.
    """

    def __init__(self, run: str | None, prompts_topic: str, *, at_least_once: bool = False) -> None:
        self._run = run
        self._prompts_topic = prompts_topic
        self._at_least_once = at_least_once
        self._dispatched: dict[int, _Prompted] = {}
        self._by_place: dict[str, _Prompted] = {}
        self._ends: dict[int, _End] = {}
        self._kinds: dict[_End, _End] = {}
        self._later: set[int] = set()
        self._latest: dict[int, tuple[int, int]] = {}
        self._beside: Counter[str] = Counter()
        self._unknown = _Samples()
        self._twice = _Samples()

    def prompt(self, record: Record) -> None:
        """Enter a record of `prompts`. One that cannot be read is one dispatched message; it will have failed."""
        run = headers.value(record.headers, headers.RUN)
        if self._other_run(run):
            return
        place = Place(record.topic, record.partition, record.offset)
        try:
            task = read_prompt(record.value, place)
        except DataError:
            if run is not None or self._run in (None, DEFAULT_RUN):
                key = key_of("", str(place))
                self._dispatch(_Prompted("", "", record.timestamp, str(place), (key,)), [Keys(key, key, 0)])
            return
        if self._run in (None, task.prompt.run_id):
            keys = [keys_of(r.run_id, r.rollout_id, r.attempt) for r in task.rollouts()]
            agent = task.prompt.agent or agent_name(task.row) or ""
            of = _Prompted(task.prompt.environment or "", agent, record.timestamp, str(place), tuple(k.key for k in keys))
            self._dispatch(of, keys)

    def scored(self, record: Record) -> None:
        """Enter a record of `scored-rollouts`."""
        found = dict(record.headers)
        if self._other_run(found.get(headers.RUN)):
            return
        try:
            run, rollout, attempt, environment = scored_identity(record.value or b"", found)
        except (DataError, ValueError):
            self._beside["unreadable"] += 1
            return
        if self._run in (None, run):
            self._end(run, rollout, attempt, _End(Outcome.SCORED, "", environment))

    def failure(self, record: Record) -> None:
        """Enter a record of `failures`."""
        if self._other_run(headers.value(record.headers, headers.RUN)):
            return
        try:
            failure = codec.decode(record.value or b"", Failure)
        except DataError:
            self._beside["unreadable"] += 1
            return
        if self._run not in (None, failure.run_id):
            return
        end = _End(failure.outcome, failure.failure_class, failure.environment)
        if failure.outcome in _BESIDE:
            self._beside[failure.outcome] += 1
        elif failure.ref is not None:
            self._end(failure.ref.run_id, failure.ref.rollout_id, failure.ref.attempt, end)
        else:
            self._end_message(failure, end)

    def close(self, taken_ms: int, name: Naming) -> Ledger:
        """The account of what was entered, as of `taken_ms`."""
        counts: dict[str, Counter[str]] = {}
        classes: Counter[str] = Counter()
        oldest: _Prompted | None = None
        for prompted, end in self._rollouts():
            environment = (end.environment if end else "") or _name(prompted, name)
            counts.setdefault(environment, Counter())[end.outcome if end else "in_flight"] += 1
            if end is None and (oldest is None or prompted.timestamp_ms < oldest.timestamp_ms):
                oldest = prompted
            if end is not None and end.failure_class:
                classes[end.failure_class] += 1
        return Ledger(
            run=self._run,
            taken_ms=taken_ms,
            total=_counts(sum(counts.values(), Counter())),
            by_environment={e: _counts(c) for e, c in sorted(counts.items())},
            by_class=dict(sorted(classes.items())),
            beside=dict(sorted(self._all_beside().items())),
            unknown=tuple(self._unknown.first),
            unknown_count=self._unknown.count,
            ended_twice=tuple(self._twice.first),
            ended_twice_count=self._twice.count,
            oldest=None if oldest is None else Waiting(oldest.timestamp_ms, oldest.place),
        )

    def _other_run(self, run: bytes | None) -> bool:
        return self._run is not None and run is not None and run != self._run.encode()

    def _dispatch(self, prompted: _Prompted, keys: Sequence[Keys]) -> None:
        """Enter the rollouts of a prompt; those that were dispatched before are not new."""
        self._by_place[prompted.place] = prompted
        for k in keys:
            if k.attempt:
                self._add_attempt(k)
            self._dispatched.setdefault(k.base, prompted)

    def _add_attempt(self, keys: Keys) -> None:
        self._later.add(keys.key)
        self._latest[keys.base] = max(self._latest.get(keys.base, (0, keys.base)), (keys.attempt, keys.key))

    def _end(self, run: str, rollout: str, attempt: int, end: _End) -> None:
        keys = keys_of(run, rollout, attempt)
        if keys.key not in self._later and (attempt or keys.key not in self._dispatched):
            if keys.base not in self._dispatched:
                self._unknown.add(f"{run}/{rollout}")
                return
            self._add_attempt(keys)  # a worker's own retry: no prompt asked for it
        self._book(keys.key, end, f"{run}/{rollout}")

    def _end_message(self, failure: Failure, end: _End) -> None:
        """A failure that names no rollout: its prompt's, a row that was refused before it was sent, or neither."""
        places = [str(p) for p in (failure.place, failure.source) if p is not None and p.topic == self._prompts_topic]
        prompted = next((self._by_place[p] for p in places if p in self._by_place), None)
        if prompted is not None:
            for key in prompted.keys:
                self._book(key, end, prompted.place)
        elif failure.file:
            where = f"{failure.file}:{failure.line}"
            key = key_of(failure.run_id, f"{where}:{zlib.crc32(failure.original.data)}:{failure.original.crc}")
            if key not in self._dispatched:  # the same bad row, sent again, is refused again: still one row
                self._dispatch(_Prompted("", "", failure.failed_ms, where, (key,)), [Keys(key, key, 0)])
                self._book(key, end, where)
        elif places:
            self._unknown.add(places[0])
        else:
            self._beside["stray"] += 1

    def _book(self, key: int, end: _End, name: str) -> None:
        earlier = self._ends.get(key)
        if earlier is None:
            self._ends[key] = self._kinds.setdefault(end, end)
        elif self._at_least_once and earlier.outcome == end.outcome:
            self._beside["repeated"] += 1
        else:
            self._twice.add(name)
            if end.outcome == Outcome.SCORED:
                self._ends[key] = end

    def _rollouts(self) -> Iterator[tuple[_Prompted, _End | None]]:
        """Every dispatched rollout, with the end of its last attempt."""
        for base, prompted in self._dispatched.items():
            _, key = self._latest.get(base, (0, base))
            yield prompted, self._ends.get(key)

    def _all_beside(self) -> Counter[str]:
        counted = sum(1 for _, end in self._rollouts() if end is not None)
        earlier = len(self._ends) - counted
        return self._beside + Counter({"earlier attempts": earlier})


def _name(prompted: _Prompted, name: Naming) -> str:
    if not prompted.environment and not prompted.agent:
        return NO_ENVIRONMENT
    return name(prompted.environment, prompted.agent)


def _counts(counter: Counter[str]) -> Counts:
    return Counts(
        dispatched=counter.total(),
        scored=counter[Outcome.SCORED],
        failed=counter[Outcome.FAILED],
        cancelled=counter[Outcome.CANCELLED],
        expired=counter[Outcome.EXPIRED],
        in_flight=counter["in_flight"],
    )
