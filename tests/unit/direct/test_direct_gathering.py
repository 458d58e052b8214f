"""Rollouts that are scored together over HTTP: every call waits for its group (genrm_compare, "Group gathering")."""

import asyncio

import pytest
from support.fronts import example, fronted, message

RANKED = {"responses_create_params": {"input": "Say much."}, "number": 1}


def body(index, text, **fields):
    return {**RANKED, "_ng_task_index": index, "response": message(text), **fields}


async def test_members_wait_for_each_other_and_each_gets_its_own_score():
    async with fronted("ranked", group_size=3) as f:
        calls = [f.client.post("/verify", json=body(0, text)) for text in ("a", "aaa", "aa")]
        replies = await asyncio.wait_for(asyncio.gather(*calls), 20)
        assert [r.json()["reward"] for r in replies] == [0.0, 2.0, 1.0]


async def test_groups_do_not_mix_and_one_alone_ends_with_its_deadline():
    settings = {"deadlines": {"rollout_timeout_s": 0.3}}
    async with fronted("ranked", group_size=2, settings=settings) as f:
        pair = [f.client.post("/verify", json=body(0, t)) for t in ("a", "aa")]
        *both, alone = await asyncio.gather(*pair, f.client.post("/verify", json=body(1, "a")))
        assert [r.json()["reward"] for r in both] == [0.0, 1.0]
        assert alone.status_code == 500
        assert "of a group of 2 only 1 had come" in alone.json()["detail"]
        again = [f.client.post("/verify", json=body(1, t)) for t in ("a", "aa")]
        assert [r.json()["reward"] for r in await asyncio.gather(*again)] == [0.0, 1.0], "the one that left is not counted"


async def test_a_task_without_an_index_is_told_that_it_needs_one():
    async with fronted("ranked", group_size=2) as f:
        reply = await f.client.post("/verify", json={**RANKED, "response": message("a")})
        assert (reply.status_code, reply.json()["error"]["class"]) == (422, "data")
        assert "_ng_task_index" in reply.json()["detail"]


async def test_a_group_that_cannot_be_scored_fails_for_each_member():
    async with fronted("ranked", group_size=2) as f:
        calls = [f.client.post("/verify", json=body(0, t, group_does="raise")) for t in ("a", "aa")]
        replies = await asyncio.gather(*calls)
        assert {(r.status_code, r.json()["error"]["class"]) for r in replies} == {(500, "verifier")}


@pytest.mark.parametrize("size", [None, 2])
async def test_the_size_is_the_environments_own_unless_one_is_given(size):
    row = {**example("genrm_compare"), "_ng_task_index": 0}
    async with fronted("genrm_compare", group_size=size) as f:
        own = f.front.registry.binding("genrm_compare", None).environment.config.num_rollouts_per_prompt
        count = size or own
        calls = [f.client.post("/verify", json={**row, "response": message(f"answer {n}")}) for n in range(count)]
        replies = await asyncio.wait_for(asyncio.gather(*calls), 30)
        assert [r.status_code for r in replies] == [200] * count
