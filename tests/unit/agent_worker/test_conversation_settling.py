from __future__ import annotations

import asyncio
import json
import tempfile
from dataclasses import replace
from pathlib import Path

from hypothesis import given
from hypothesis import strategies as st
from support.steps import called, rollout, said

from schemas import jsontext
from services.agent_worker import conversation
from services.runtime.claims import ClaimStore

texts = st.one_of(st.text(max_size=20), st.integers(0, 3000).map(lambda n: "x" * n), st.just("\ud83d"))
turns = st.lists(st.lists(st.one_of(texts.map(said), texts.map(lambda t: called(arguments=t))), max_size=3), max_size=12)


def whole(store, state):
    return json.loads(b"[" + conversation.joined(asyncio.run(conversation.settled_items(store, state)), state.items) + b"]")


@given(turns)
def test_settling_keeps_the_conversation_and_bounds_what_travels(made):
    with tempfile.TemporaryDirectory() as folder:
        store, ghost = ClaimStore(folder), ClaimStore(folder + "/ghost")
        state, expected, before = rollout({"filler": "x" * 1000}), [], []
        for number, items in enumerate(made, start=1):
            again = asyncio.run(conversation.settle(ghost, replace(state, turn=number)))
            state = asyncio.run(conversation.settle(store, replace(state, turn=number)))
            assert again == state  # the same claims, whoever stores them
            assert state.settled[: len(before)] == tuple(before)  # what was settled stays
            before = list(state.settled)
            if number >= conversation.SETTLE_FROM_TURN:
                assert len(state.items) <= conversation.SETTLE_BYTES
            state = replace(state, items=conversation.joined(state.items, conversation.items_json(items)))
            expected += items
            assert whole(store, state) == json.loads(jsontext.dumps(expected))
        names = [p for p in Path(folder).rglob("*") if p.is_file() and "ghost" not in p.parts]
        assert len(names) == len(state.settled) + (state.row.size > 0)
        store.close()
        ghost.close()


def test_few_turns_never_touch_the_store(tmp_path):
    store = ClaimStore(str(tmp_path / "claims"))
    state = replace(rollout({"filler": "x" * 10_000}), turn=1, items=b"x" * 10_000)
    assert asyncio.run(conversation.settle(store, state)) is state
    assert not (tmp_path / "claims").exists()


def test_a_string_is_one_message_and_no_input_is_none():
    assert conversation.input_items({"input": "x"}) == b'{"role":"user","content":"x"}'
    assert conversation.input_items({"input": [{"a": 1}, {"b": 2}]}) == b'{"a":1},{"b":2}'
    assert conversation.input_items({}) == b""
    assert conversation.joined(b"", b"a", b"", b"b") == b"a,b"
