import random
from dataclasses import replace

from aiokafka import ConsumerRecord

from rollstream.ledger.book import NO_ENVIRONMENT, Book
from rollstream.ledger.ledger import Counts, Ledger
from schemas import codec, headers, jsontext
from schemas.events import Failure, Payload, Prompt, Scored
from schemas.identity import Place, RolloutRef
from schemas.prompts import read_prompt

ROW = {"responses_create_params": {"input": "2+2?"}, "agent_ref": {"name": "mcqa_agent"}}
PROMPTS = "t.prompts"


def record(topic, value, found=(), offset=0, timestamp=1000):
    return ConsumerRecord(topic, 0, offset, timestamp, 0, b"k", value, 0, 1, len(value or b""), tuple(found))


def prompt(offset, *, run="r", task=None, repeats=1, environment="mcqa", attempt=0, first=0, timestamp=1000):
    event = Prompt(jsontext.dumps(ROW), run, task, None, repeats, first, attempt, None, environment)
    return record(PROMPTS, codec.encode(event), [(headers.RUN, run.encode())], offset, timestamp)


def refs(of):
    return read_prompt(of.value, Place(of.topic, of.partition, of.offset)).rollouts()


def scored(ref, environment="mcqa"):
    return record("t.scored-rollouts", b"{}", [*headers.of(ref), (headers.ENVIRONMENT, environment.encode())])


def failure(ref=None, *, run="r", outcome="failed", cls="model", place=None, environment="mcqa", file="", line=0, original=b""):
    event = Failure(
        run_id=run, failure_class=cls, outcome=outcome, stage="agent", error_type="E", message="m", retryable=True, failed_ms=7,
        ref=ref, place=place, environment=environment, file=file, line=line, original=Payload(original),
    )  # fmt: skip
    return record("t.failures", codec.encode(event), [(headers.RUN, run.encode())])


def close(run, prompts=(), scores=(), failures=(), **options) -> Ledger:
    book = Book(run, PROMPTS, **options)
    for r in prompts:
        book.prompt(r)
    for r in scores:
        book.scored(r)
    for r in failures:
        book.failure(r)
    return book.close(2000, lambda environment, agent: environment or f"of {agent}")


def test_every_rollout_is_in_one_column():
    p = prompt(0, repeats=5)
    a, b, c, d, _ = refs(p)
    ledger = close(
        "r",
        [p],
        [scored(a)],
        [failure(b), failure(c, outcome="cancelled", cls="cancelled"), failure(d, outcome="expired", cls="timeout")],
    )
    assert ledger.total == Counts(5, 1, 1, 1, 1, 1)
    assert ledger.by_environment == {"mcqa": ledger.total}
    assert ledger.by_class == {"cancelled": 1, "model": 1, "timeout": 1}
    assert ledger.balanced
    assert not ledger.complete
    assert "5 dispatched = 1 scored + 1 failed + 1 cancelled + 1 expired + 1 in flight" in ledger.equation()


def test_a_duplicate_prompt_dispatches_nothing_and_is_shown_beside():
    p, again = prompt(0, task="t1"), prompt(1, task="t1")
    (ref,) = refs(p)
    ledger = close("r", [p, again], [scored(ref)], [failure(ref, outcome="duplicate", cls="data")])
    assert ledger.total == Counts(dispatched=1, scored=1)
    assert ledger.beside == {"duplicate": 1}
    assert ledger.balanced


def test_bare_rows_are_told_apart_by_their_place_and_belong_to_the_default_run():
    row = jsontext.dumps(ROW)
    bare = [record(PROMPTS, row, offset=i) for i in range(3)]
    (ref,) = refs(bare[1])
    assert close("default", bare, [scored(ref)]).total == Counts(dispatched=3, scored=1, in_flight=2)
    assert close("default", bare).by_environment == {"of mcqa_agent": Counts(dispatched=3, in_flight=3)}
    assert close("r", bare).total == Counts()


def test_a_malformed_prompt_is_one_message_and_its_failure_ends_it():
    bad = record(PROMPTS, b"{not json", offset=4)
    end = failure(run="default", cls="data", place=Place(PROMPTS, 0, 4), environment="")
    assert close(None, [bad]).total == Counts(dispatched=1, in_flight=1)
    ledger = close(None, [bad], failures=[end])
    assert ledger.by_environment == {NO_ENVIRONMENT: Counts(dispatched=1, failed=1)}
    assert ledger.balanced


def test_a_prompt_refused_whole_fails_all_it_asked_for():
    p = prompt(9, repeats=3, environment="nowhere")
    ledger = close("r", [p], failures=[failure(cls="data", place=Place(PROMPTS, 0, 9), environment="")])
    assert ledger.total == Counts(dispatched=3, failed=3)


def test_a_row_refused_before_it_was_sent_counts_once_however_often_it_is_refused():
    refused = failure(cls="data", file="rows.jsonl", line=3, original=b"x", environment="")
    other = failure(cls="data", file="rows.jsonl", line=3, original=b"y", environment="")
    ledger = close("r", failures=[refused, refused, other])
    assert ledger.total == Counts(dispatched=2, failed=2)
    assert ledger.balanced


def test_the_last_attempt_counts():
    first, second = prompt(0, task="t", repeats=2), prompt(1, task="t", repeats=2, attempt=1)
    a0, b0 = (replace(r, task_index=0) for r in refs(first))
    # The task index follows from the place unless it is given: an attempt keeps the first one's.
    first, second = (with_index(p, 0) for p in (first, second))
    a1, b1 = refs(second)
    ledger = close("r", [first, second], [scored(a1), scored(b0)], [failure(a0)])
    assert ledger.total == Counts(dispatched=2, scored=1, in_flight=1)
    assert ledger.beside == {"earlier attempts": 2}
    assert close("r", [first, second], [scored(b1)], [failure(a0), failure(b0), failure(a1)]).total == Counts(2, 1, 1)


def with_index(of, index):
    event = codec.decode(of.value, Prompt)
    return replace(of, value=codec.encode(replace(event, task_index=index)))


def test_a_retry_that_no_prompt_asked_for_replaces_the_first_attempt():
    p = prompt(0)
    (ref,) = refs(p)
    ledger = close("r", [p], [scored(replace(ref, attempt=1))], [failure(ref)])
    assert ledger.total == Counts(dispatched=1, scored=1)
    assert ledger.balanced


def test_an_end_without_a_prompt_unbalances():
    ref = RolloutRef("r", "t", 7, 0)
    ledger = close("r", [prompt(0)], [scored(ref)])
    assert not ledger.balanced
    assert ledger.unknown == ("r/7-0",)
    assert "≠" in ledger.equation()
    assert "r/7-0" in ledger.complaints()[0]


def test_ending_twice_unbalances_except_as_a_repeat_at_least_once():
    p = prompt(0)
    (ref,) = refs(p)
    twice = close("r", [p], [scored(ref), scored(ref)])
    assert not twice.balanced
    assert twice.ended_twice == (f"r/{ref.rollout_id}",)
    repeat = close("r", [p], [scored(ref), scored(ref)], at_least_once=True)
    assert repeat.balanced
    assert repeat.beside == {"repeated": 1}
    both = close("r", [p], [scored(ref)], [failure(ref)], at_least_once=True)
    assert not both.balanced
    assert both.total.scored == 1


def test_other_runs_are_left_out_and_all_runs_are_kept_apart():
    mine, other = prompt(0, run="r", task="t"), prompt(1, run="s", task="t")
    mine, other = with_index(mine, 0), with_index(other, 0)
    ends = [scored(refs(mine)[0]), scored(refs(other)[0])]
    assert close("r", [mine, other], ends).total == Counts(dispatched=1, scored=1)
    assert close(None, [mine, other], ends).total == Counts(dispatched=2, scored=2)


def test_the_oldest_in_flight_is_the_earliest_prompt_without_an_end():
    done, old, new = prompt(0, timestamp=10), prompt(1, timestamp=20), prompt(2, timestamp=30)
    oldest = close("r", [new, old, done], [scored(refs(done)[0])]).oldest
    assert oldest is not None
    assert (oldest.since_ms, oldest.prompt) == (20, f"{PROMPTS}/0/1")


def test_a_scored_record_without_our_headers_is_known_by_its_content():
    p = with_index(prompt(0, run="default"), 4)
    line = record("t.scored-rollouts", jsontext.dumps({"_ng_task_index": 4, "_ng_rollout_index": 0, "reward": 1}))
    avro = record("t.scored-rollouts", codec.encode(Scored(refs(p)[0], "mcqa", "a", Place(PROMPTS, 0, 0), 1.0, Payload(b"{}"))))
    for value in (line, avro):
        assert close("default", [p], [value]).total == Counts(dispatched=1, scored=1)


def test_garbage_in_the_ends_is_beside():
    ledger = close(None, [], [record("t.scored-rollouts", b"garbage")], [record("t.failures", b"garbage"), failure(cls="tool")])
    assert ledger.beside == {"stray": 1, "unreadable": 2}
    assert ledger.balanced


def test_whatever_happens_the_columns_add_up():
    rng = random.Random(5)
    for _ in range(200):
        prompts = [
            with_index(prompt(i, task=f"t{i % 4}", repeats=rng.randint(1, 3), attempt=rng.randint(0, 2)), i % 4)
            for i in range(6)
        ]
        known = [r for p in prompts for r in refs(p)]
        ends = [RolloutRef("r", "x", 99, 0), *rng.choices(known, k=5)]
        ledger = close("r", prompts, map(scored, ends[:3]), map(failure, ends[3:]))
        total = ledger.total
        assert total.dispatched == total.ended + total.in_flight == len({(r.task_index, r.rollout_index) for r in known})
        assert ledger.unknown_count == 1


def test_json_and_table_say_the_same():
    from io import StringIO

    from rich.console import Console

    p = prompt(0, repeats=2, environment="[red]evil\x1b[31m")
    ledger = close("r", [p], [], [failure(refs(p)[0], environment="")])
    value = jsontext.loads(ledger.as_json())
    assert value["total"]["failed"] == 1
    assert value["balanced"] is True
    out = StringIO()
    Console(file=out, width=120, force_terminal=False).print(ledger.as_table())
    text = out.getvalue()
    assert "[red]evil\\x1b[31m" in text
    assert "\x1b" not in text
    assert "2 dispatched = 0 scored + 1 failed" in text
