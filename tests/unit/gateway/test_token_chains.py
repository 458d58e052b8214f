"""Calls of an agent that we do not control, as one training sample (platform.md D8)."""

import time

import pytest
from hypothesis import given
from hypothesis import strategies as st

from services.gateway.token_chains import build


def call(at, prompt, generation):
    return {
        "model_call_id": str(at),
        "created_at": at,
        "prompt_token_ids": prompt,
        "generation_token_ids": generation,
        "generation_log_probs": [-1.0] * len(generation),
        "output_items": [{"type": "message", "n": at}],
        "token_item_index": 0,
    }


CASES = {
    "one_chain": ([call(1, [1], [2]), call(2, [1, 2, 3], [4]), call(3, [1, 2, 3, 4, 5], [6])], [1, 2, 3], (), (1, 1, 0)),
    "no_calls": ([], [], ("no_tokens",), (0, 0, 0)),
    "a_retry_that_was_extended": ([call(1, [1], [2]), call(2, [1], [3]), call(3, [1, 3, 5], [6])], [2, 3], (), (1, 1, 0)),
    "a_retry_at_the_end": ([call(1, [1], [2]), call(2, [1, 2, 3], [4]), call(3, [1, 2, 3], [5])], [1, 2], ("unresolved_siblings",), (1, 1, 0)),
    "a_sub_agent": ([call(1, [1], [2]), call(2, [9], [8]), call(3, [1, 2, 3], [4])], [1, 3], ("several_roots", "several_chains"), (2, 2, 0)),
    "a_fork": ([call(1, [1], [2]), call(2, [1, 2, 3], [4]), call(3, [1, 2, 7], [8])], [1, 2], ("several_chains",), (2, 1, 0)),
    "history_rewritten": ([call(1, [1], [2]), call(2, [1, 9, 3], [4])], [1], ("several_roots", "several_chains"), (2, 2, 0)),
    "two_equal_parents": (
        [call(1, [1], [2]), call(2, [1], [2]), call(3, [1, 2, 3], [4])],
        [1],
        ("unresolved_siblings", "quarantined_calls"),
        (1, 1, 1),
    ),
    "an_empty_generation": ([call(1, [1], [2]), call(2, [1, 2, 3], []), call(3, [1, 2, 3], [4])], [1, 3], (), (1, 1, 0)),
    "out_of_order": ([call(2, [1, 2, 3], [4]), call(1, [1], [2])], [1, 2], (), (1, 1, 0)),
    "the_longest_parent": ([call(1, [1], [2]), call(2, [1, 2], [3]), call(3, [1, 2, 3, 4], [5])], [1, 2, 3], (), (1, 1, 0)),
}  # fmt: skip


@pytest.mark.parametrize("name", CASES)
def test_chains(name):
    calls, delivered, reasons, counts = CASES[name]
    sample = build(calls)
    assert [r["created_at"] for r in sample.chain] == delivered
    assert (sample.mask_sample, sample.reasons) == (bool(reasons), reasons)
    metrics = sample.metrics
    assert (metrics["chains"], metrics["roots"], metrics["quarantined_calls"]) == counts
    assert metrics["n_calls"] == len(calls)
    assert metrics["empty_generation_calls"] == sum(not c["generation_token_ids"] for c in calls)
    assert metrics["generated_tokens_captured"] == sum(len(c["generation_token_ids"]) for c in calls)
    assert metrics["generated_tokens_delivered"] == sum(len(r["generation_token_ids"]) for r in sample.chain)


def test_a_missing_call_masks_the_sample():
    sample = build([call(1, [1], [2])], incomplete=True)
    assert (sample.mask_sample, sample.reasons) == (True, ("incomplete",))
    json = sample.as_json()
    assert json["_ng_token_capture"]["status"] == "masked"
    assert json["output"][0] == {
        "type": "message", "n": 1, "prompt_token_ids": [1], "generation_token_ids": [2], "generation_log_probs": [-1.0],
    }  # fmt: skip


CALLS = st.lists(st.tuples(st.lists(st.integers(0, 2), max_size=4), st.lists(st.integers(0, 2), max_size=2)), max_size=7)


@given(CALLS)
def test_what_is_delivered_is_one_sequence_of_tokens_and_everything_is_counted(calls):
    sample = build([call(i, p, g) for i, (p, g) in enumerate(calls)])
    seen = []
    for record in sample.chain:
        assert record["prompt_token_ids"][: len(seen)] == seen
        seen = record["prompt_token_ids"] + record["generation_token_ids"]
    assert 0 <= sample.metrics["delivered_fraction"] <= 1
    assert sample.mask_sample is bool(sample.reasons)
    if not sample.mask_sample:
        assert sample.metrics["chains"] == 1


def test_a_thousand_calls_in_a_row_take_no_time():
    started = time.process_time()
    tokens, calls = [1], []
    for i in range(1000):
        calls.append(call(i, list(tokens), [2] * 20))
        tokens += [2] * 20 + [3] * 10
    sample = build(calls)
    assert len(sample.chain) == 1000
    assert time.process_time() - started < 10
