"""Where a call's tokens are found, and what is refused rather than guessed (platform.md A4, D8, D9)."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from services.models import tokens
from services.models.wire import UnusableReplyError

OWN = {"prompt_token_ids": [1, 2], "generation_token_ids": [3, 4], "generation_log_probs": [-0.5, -0.25]}


def entries(*pairs, text="token_id:{}"):
    return {"content": [{"token": text.format(i), "logprob": p} for i, p in pairs]}


def found(message=None, completion=None, **choice):
    return tokens.found(completion or {}, choice, message or {})


def test_the_fields_on_the_message():
    assert found({**OWN, "routed_experts": "abc"}).fields() == {**OWN, "routed_experts": "abc"}


def test_prompt_and_token_ids_beside_it():
    choice = {"token_ids": [3, 4], "logprobs": entries((3, -0.5), (4, -0.25))}
    assert found(None, {"prompt_token_ids": [1, 2]}, **choice).fields() == OWN
    assert found(None, None, prompt_token_ids=[1, 2], **choice).fields() == OWN


@pytest.mark.parametrize(
    "logprobs",
    [
        entries((3, -0.5), (4, -0.25)),
        {"content": [{"id": 3, "logprob": -0.5}, {"id": 4, "logprob": -0.25}]},  # mlx-lm
        {"tokens": ["token_id:3", "token_id:4"], "token_logprobs": [-0.5, -0.25]},  # text completions
    ],
)
def test_ids_inside_the_log_probabilities(logprobs):
    got = found(None, None, logprobs=logprobs)
    assert got.prompt is None
    assert got.with_prompt([1, 2], 2).fields() == OWN


def test_an_empty_generation_has_empty_fields():
    got = found(None, {"prompt_token_ids": [1]}, token_ids=[], logprobs=None)
    assert got.fields() == {"prompt_token_ids": [1], "generation_token_ids": [], "generation_log_probs": []}


def test_sources_that_agree_are_one():
    got = found(OWN, {"prompt_token_ids": [1, 2]}, token_ids=[3, 4], logprobs=entries((3, -0.5), (4, -0.2500001)))
    assert got.fields() == OWN


@pytest.mark.parametrize(
    ("message", "completion", "choice", "says"),
    [
        ({k: OWN[k] for k in list(OWN)[:2]}, {}, {}, "generation_log_probs"),
        ({}, {"prompt_token_ids": [1]}, {}, "only one of"),
        ({}, {}, {"token_ids": [1]}, "only one of"),
        ({}, {"prompt_token_ids": [1]}, {"token_ids": [3]}, "without their log-prob"),
        ({}, {"prompt_token_ids": [1]}, {"token_ids": [3, 4], "logprobs": entries((3, -1.0))}, "2 generated tokens and 1"),
        ({**OWN, "generation_log_probs": [-0.5]}, {}, {}, "2 generated tokens and 1"),
        (OWN, {}, {"logprobs": entries((3, -0.5), (5, -0.25))}, "disagree about the generated"),
        (OWN, {"prompt_token_ids": [9, 2]}, {"token_ids": [3, 4], "logprobs": entries((3, -0.5), (4, -0.25))}, "prompt's"),
        (OWN, {}, {"logprobs": entries((3, -0.5), (4, -0.75))}, "log-probabilities"),
        (
            {},
            {},
            {"logprobs": {"content": [{"token": "token_id:3", "logprob": -1.0}, {"token": "b", "logprob": -1.0}]}},
            "1 of 2",
        ),
        ({}, {}, {"logprobs": entries((3, None))}, "no log-probability"),
        ({}, {}, {"logprobs": entries((3, float("nan")))}, "no log-probability"),
        ({}, {}, {"logprobs": entries((3, -1.0), text="text {}")}, "no token ids"),
        ({}, {}, {}, "no token ids"),
        ({**OWN, "prompt_token_ids": ["1", "2"]}, {}, {}, "list of token ids"),
        ({**OWN, "prompt_token_ids": [True, 2]}, {}, {}, "list of token ids"),
    ],
)
def test_what_is_partial_or_disagrees_is_an_error(message, completion, choice, says):
    """D8: never a guess."""
    with pytest.raises(UnusableReplyError, match=says):
        found(message, completion, **choice)


def test_a_prompt_tokenized_elsewhere_must_be_as_long_as_the_engine_says():
    with pytest.raises(UnusableReplyError, match="3 tokens by the engine's count and 2"):
        found(None, None, logprobs=entries((3, -1.0))).with_prompt([1, 2], 3)


def test_all_tokens_seen_end_with_the_last_turn_that_has_its_own():
    messages = [{"role": "assistant", **OWN}, {"role": "user"}, {"role": "assistant"}]
    assert tokens.seen_before(messages) == [1, 2, 3, 4]
    assert tokens.seen_before([]) == []
    assert tokens.Tokens([1, 2, 3, 4, 9], [], []).extends([1, 2, 3, 4])
    assert not tokens.Tokens([1, 2, 3], [], []).extends([1, 2, 3, 4])


JSON = st.recursive(
    st.none() | st.booleans() | st.integers(-2, 9) | st.floats() | st.text(max_size=4),
    lambda c: st.lists(c, max_size=3) | st.dictionaries(st.sampled_from(["content", "tokens", "token_logprobs", "id", "token", "logprob"]), c, max_size=3),
    max_leaves=10,
)  # fmt: skip


@given(JSON, JSON, JSON, JSON)
def test_whatever_an_engine_sends_it_is_tokens_of_equal_length_or_an_error(prompt, ids, logprobs, own):
    try:
        got = found({"generation_token_ids": own}, {"prompt_token_ids": prompt}, token_ids=ids, logprobs=logprobs)
    except UnusableReplyError:
        return
    assert len(got.generation) == len(got.log_probs)
