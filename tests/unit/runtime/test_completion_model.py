"""Completion against a model: a log with gaps, work that ends in any order, commits, crashes, rebalances.

The model knows which records exist and which are done for good (their commit went through). Sets of offsets are bits of
integers, so that spans of tens of thousands of offsets can be compared after every step.
"""

import random

import hypothesis
import pytest
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule

from services.runtime import position_codec
from services.runtime.completion import Completion
from services.runtime.delivery import Position

SLOW = st.sampled_from((0.0, 0.0003, 0.001, 0.01, 0.1, 0.5))
"""Shares of records that are not done at once."""

SEEDS = st.integers(0, 2**32 - 1)
GAPS = {
    "none": lambda rng: 0,
    "control records": lambda rng: 1,
    "now and then": lambda rng: rng.choice((0, 0, 0, 0, 1)),
    "aborted transactions": lambda rng: rng.choice((0, 0, 0, 0, 0, 0, 0, 0, 0, rng.randrange(400))),
    "compacted": lambda rng: rng.randrange(30),
}


def bits_of(offsets):
    text = bytearray(max(offsets, default=0) // 8 + 1)
    for o in offsets:
        text[o >> 3] |= 1 << (o & 7)
    return int.from_bytes(text, "little")


class CompletionMachine(RuleBasedStateMachine):
    """One partition and whoever has it; `held` is delivered work without a result, `results` waits for a commit."""

    @initialize(start=st.sampled_from((0, 0, 7, 5_000_000)))
    def begin(self, start):
        self.log, self.end = [], start
        self.exists = self.done = 0  # bits over offsets from `start`
        self.start = start
        self.committed = (None, "")
        self.completion, self.at = Completion(Position()), 0
        self.held, self.results = set(), set()
        self.slow = set()  # what was slow once stays slow for a while

    # --- the log ---

    @rule(count=st.integers(1, 300), gaps=st.sampled_from(sorted(GAPS)), seed=SEEDS)
    def produce(self, count, gaps, seed):
        self._produce(count, gaps, random.Random(seed))

    @rule(count=st.integers(6_000, 9_000), gaps=st.sampled_from(sorted(GAPS)), slow=SLOW, seed=SEEDS)
    def rush(self, count, gaps, slow, seed):
        """Many records come, and all but some are done at once: spans grow past what a bitmap holds."""
        rng = random.Random(seed)
        self._produce(count, gaps, rng)
        self._rush(slow, rng)

    @rule(size=st.sampled_from((3_000, 40_000, 300_000, 10_000_000)))  # the last is more than a span may be
    def leave_a_large_gap(self, size):
        """Retention, or the abort of a huge transaction."""
        self.end += size

    # --- work ---

    @rule(count=st.integers(1, 700))
    def deliver(self, count):
        self._deliver(count)

    @rule(share=st.floats(0, 1), seed=SEEDS)
    def work(self, share, seed):
        rng = random.Random(seed)
        ended = {o for o in sorted(self.held) if rng.random() < share}
        self.held -= ended
        self.results |= ended

    @rule()
    def commit(self):
        self._commit()

    # --- what goes wrong ---

    @rule(reached=st.booleans())
    def commit_fails(self, reached):
        """The answer to a commit is lost; the broker may have it or not. The lane opens again and keeps its work."""
        position = self._finish_results()
        if reached and position.offset is not None:
            self._make_durable(position)
        self._open(keep=True)

    @rule()
    def crash(self):
        self._open(keep=False)

    @rule(slow=SLOW, seed=SEEDS)
    def lose_and_regain(self, slow, seed):
        """A stall: another owner has the partition, gets somewhere, and gives it back before we knew."""
        mine = (self.held, self.results)
        self.held, self.results = set(), set()
        self._open(keep=False)
        self._rush(slow, random.Random(seed))
        self.held, self.results = mine
        self._open(keep=True)

    # --- what always holds ---

    @invariant()
    def a_position_claims_what_is_done_and_nothing_else(self):
        if not hasattr(self, "log"):
            return
        offset, metadata = self.committed
        if offset is None:
            return
        assert len(metadata) <= position_codec.MAX_METADATA
        position = position_codec.decode(offset, metadata)
        claimed = self._claimed(position)
        assert not claimed & self.exists & ~self.done, "a record is claimed that nobody finished"
        assert not self.done & ~claimed, "a record is done and would be done again"

    @invariant()
    def work_goes_on(self):
        if hasattr(self, "log") and not self.completion.open_count:
            assert self.completion.has_room(64), "nothing is open and yet nothing may be delivered: a stall for good"

    def teardown(self):
        """Whatever happened, finishing everything gets to the end of the log, each record done once."""
        if not hasattr(self, "log"):
            return
        for _ in range(10_000):
            before = self.at
            self._deliver(5_000)
            self.results |= self.held
            self.held = set()
            self._commit()
            if self.at == before == len(self.log):
                break
        else:
            raise AssertionError("no end in sight")
        assert self.done == self.exists
        offset, metadata = self.committed
        if self.log:
            assert (offset, metadata) == (self.log[-1] + 1, ""), "nothing is left to remember"

    # --- how ---

    def _produce(self, count, gaps, rng):
        offsets = []
        for _ in range(count):
            offsets.append(self.end)
            self.end += 1 + GAPS[gaps](rng)
        self.exists |= bits_of([o - self.start for o in offsets])
        self.log += offsets

    def _deliver(self, count):
        """As a lane does: record by record, while there is room."""
        while count and self.at < len(self.log):
            offset = self.log[self.at]
            if not self.completion.has_room(1, offset):
                assert self.completion.open_count, "refused with nothing open: it will be refused for ever"
                return
            needed = self.completion.deliver(offset)
            assert needed == (not self.done >> (offset - self.start) & 1)
            if needed and offset not in self.results:
                self.held.add(offset)
            self.at += 1
            count -= 1

    def _rush(self, slow, rng):
        for _ in range(30):
            self._deliver(rng.randrange(1, 1_500))
            stay = {o for o in self.held if rng.random() < max(slow, 0.9 * (o in self.slow))}
            self.slow |= stay
            self.results |= self.held - stay
            self.held = stay
            self._commit()

    def _finish_results(self):
        if self.completion.is_placed:
            for offset in self.results:
                self.completion.finish(offset)
        return self.completion.position()

    def _commit(self):
        if self.results and self.completion.is_placed:
            self._make_durable(self._finish_results())
            self.results = set()

    def _make_durable(self, position):
        self.committed = (position.offset, position_codec.encode(position))
        new = bits_of([o - self.start for o in self.results])
        assert not new & self.done, "the outputs of a record are committed a second time"
        self.done |= new

    def _open(self, keep):
        offset, metadata = self.committed
        position = Position() if offset is None else position_codec.decode(offset, metadata)
        self.completion = Completion(position)
        self.at = next((i for i, o in enumerate(self.log) if o >= (offset or 0)), len(self.log))
        for mine in (self.held, self.results):
            if not keep:
                mine.clear()
            mine -= {o for o in mine if self.completion.is_finished(o)}
        if not self.completion.can_finish([*self.held, *self.results]):
            self.held, self.results = set(), set()

    def _claimed(self, position):
        below = max(0, position.offset - self.start)
        return (1 << below) - 1 | position.finished << below


def machine(examples):
    made = type("Made", (CompletionMachine,), {}).TestCase
    made.settings = hypothesis.settings(max_examples=examples, stateful_step_count=25)
    return made


TestCompletionMachine = machine(max(10, hypothesis.settings.default.max_examples // 5))
TestCompletionMachineForLong = pytest.mark.slow(pytest.mark.timeout(600)(machine(200)))
