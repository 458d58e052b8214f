"""An environment's routes as existing agents and reward functions call them (platform.md H; agents.md, "Tool server replies")."""

import asyncio
import json

import pytest
from support.fronts import example, fronted, message
from support.pipeline import KEY, faulty

from rollstream.front.bounds import Bounds
from rollstream.front.served import SESSION_HEADER
from schemas.rows import ROLLOUT_ID, TASK_INDEX

COUNTER = "example_session_state_mgmt"


async def test_h_an_agents_rollout_seed_tools_and_verification_share_a_session_by_cookie():
    row = example(COUNTER)
    async with fronted(COUNTER) as f:
        seeded = await f.client.post("/seed_session", json=row)
        assert (seeded.status_code, seeded.json()) == (200, {})
        assert "HttpOnly" in seeded.headers["set-cookie"]
        assert "SameSite=lax" in seeded.headers["set-cookie"]
        missing = row["expected_count"] - row["initial_count"]
        added = await f.client.post("/increment_counter", json={"count": missing})
        assert added.text == '{"success":true}'
        assert (await f.client.post("/get_counter_value", json={})).json() == {"count": row["expected_count"]}
        verified = (await f.client.post("/verify", json={**row, "response": message("done")})).json()
        assert verified["reward"] == 1.0
        assert verified["response"] == message("done")
        assert {k: verified[k] for k in row} == row
        assert not {TASK_INDEX, ROLLOUT_ID, "_ng_rollout_index"} & verified.keys(), "the row had none"


async def test_h_a_session_header_serves_clients_without_cookies_and_sessions_do_not_mix():
    row = example(COUNTER)
    async with fronted(COUNTER) as f, f.another() as other:
        keys = []
        for client in (f.client, other):
            seeded = await client.post("/seed_session", json=row)
            keys.append(seeded.headers[SESSION_HEADER])
        assert keys[0] != keys[1]
        async with f.another() as plain:
            for key, count in zip(keys, (1, 10), strict=True):
                await plain.post("/increment_counter", json={"count": count}, headers={SESSION_HEADER: key})
                plain.cookies.clear()
            values = []
            for key in keys:
                values.append((await plain.post("/get_counter_value", headers={SESSION_HEADER: key})).json()["count"])
                plain.cookies.clear()
        assert values == [row["initial_count"] + 1, row["initial_count"] + 10]


async def test_h_a_tool_without_a_seed_begins_a_session_where_there_is_state():
    async with fronted(COUNTER) as f:
        assert (await f.client.post("/increment_counter", json={"count": 2})).status_code == 200
        assert (await f.client.post("/get_counter_value", json={})).json() == {"count": 2}


async def test_h_calls_of_one_session_run_one_after_another():
    async with fronted(COUNTER) as f:
        await f.client.post("/seed_session", json=example(COUNTER))
        before = (await f.client.post("/get_counter_value")).json()["count"]
        await asyncio.gather(*(f.client.post("/increment_counter", json={"count": 1}) for _ in range(40)))
        assert (await f.client.post("/get_counter_value")).json() == {"count": before + 40}


@pytest.mark.parametrize(
    ("path", "sent", "status", "text"),
    [
        ("/get_weather", '{"city":"Zürich 雪"}', 200, '{"city":"Zürich 雪","weather_description":"The weather in Zürich 雪 is cold."}'),
        ("/get_weather", '{"city":"x","more":1}', 200, None),
        ("/get_weather", "{}", 422, '{"detail":[{"type":"missing","loc":["body","city"],"msg":"Field required","input":{}}]}'),
        ("/get_weather", '{"city":3}', 422, None),
        ("/get_weather", "null", 422, '{"detail":[{"type":"missing","loc":["body"],"msg":"Field required","input":null}]}'),
        ("/get_weather", "", 422, '{"detail":[{"type":"missing","loc":["body"],"msg":"Field required","input":null}]}'),
        ("/get_weather", "[1]", 422, None),
        ("/get_weather", "{not json", 400, None),
        ("/no_such_tool", "{}", 404, '{"detail":"Not Found"}'),
        ("/a/b", "{}", 404, '{"detail":"Not Found"}'),
        ("/__init__", "{}", 404, '{"detail":"Not Found"}'),
        ("/config", "{}", 404, '{"detail":"Not Found"}'),
    ],
)  # fmt: skip
async def test_h_a_tools_reply_is_what_the_model_reads_whatever_its_status(path, sent, status, text):
    async with fronted("example_single_tool_call") as f:
        reply = await f.client.post(path, content=sent.encode())
        assert reply.status_code == status
        assert text is None or reply.text == text
        assert "detail" in reply.text or status in {200, 400}


async def test_h_a_catch_all_answers_tools_of_the_row_and_our_own_names_are_never_tools():
    async with fronted("workplace_assistant", "example_single_tool_call") as f:
        await f.client.post("/workplace_assistant/seed_session", json=example("workplace_assistant"))
        found = await f.client.post("/workplace_assistant/company_directory_find_email_address", json={"name": "a"})
        assert found.status_code == 200
        for name in ("mcp", "v1", "docs", "no_such", "reverify_mode"):
            for served in ("workplace_assistant", "example_single_tool_call"):
                reply = await f.client.post(f"/{served}/{name}", json={})
                unknown = name == "no_such" and served == "workplace_assistant"
                assert reply.status_code in ({200} if unknown else {404, 405}), (served, name, reply.text)


async def test_h_texts_of_tools_go_out_as_they_are():
    async with fronted("faulty") as f:
        await f.client.post("/seed_session", json=faulty(tool_does="large", size=100_000))
        reply = await f.client.post("/poke", json={})
        assert (reply.text, reply.headers["content-type"].partition(";")[0]) == ("x" * 100_000, "text/plain")


async def test_h_a_tool_that_raises_is_a_typed_error_and_its_session_goes_on():
    async with fronted("faulty") as f:
        await f.client.post("/seed_session", json=faulty(tool_does="raise"))
        reply = await f.client.post("/poke", json={})
        assert reply.status_code == 500
        assert reply.json()["error"]["class"] == "tool"
        assert "thrown on purpose" in reply.json()["detail"]
        assert (await f.client.post("/verify", json={**faulty(), "response": message("x")})).json()["reward"] == 1.0


async def test_i5_a_reward_function_posts_one_completion_and_reads_its_reward():
    row = {k: v for k, v in example("mcqa").items() if v is not None}
    letter = row["expected_answer"]
    wrong = "B" if letter != "B" else "C"
    async with fronted("mcqa") as f:
        for text, reward in ((f"\\boxed{{{letter}}}", 1.0), (f"\\boxed{{{wrong}}}", 0.0)):
            sent = {**row, "responses_create_params": {"input": [{"role": "user", "content": "?"}]}, "response": message(text)}
            assert (await f.client.post("/verify", json=sent)).json()["reward"] == reward
        assert (await f.status())["mcqa"]["sessions"] == 0, "a verification without a session leaves none"


async def test_c3_the_mode_of_reverification_is_a_json_string():
    async with fronted("mcqa", COUNTER) as f:
        assert (await f.client.get("/mcqa/reverify_mode")).json() == "stateless"
        assert (await f.client.get(f"/{COUNTER}/reverify_mode")).json() == "unsupported"


async def test_d10_a_judge_that_cannot_be_reached_gives_the_references_row_and_no_bare_zero():
    key = f"{KEY}-judge"
    judge = {"url": "http://127.0.0.1:9/v1", "name": "judge", "api_key": key, "max_tries": 1}
    row = example("equivalence_llm_judge")
    async with fronted("equivalence_llm_judge", settings={"models": {"judge": judge}}) as f:
        reply = await f.client.post("/verify", json={**row, "response": message("Paris")})
        line = reply.json()
        assert (reply.status_code, line["reward"], line["_ng_failure_class"]) == (200, 0.0, "judge_failed")
        assert "judge" in line["_ng_failure_judge_error"]
        assert line["response"] == message("Paris")
        assert key not in reply.text


async def test_b12_metrics_are_those_of_a_runs_files():
    lines = [
        {"_ng_task_index": t, "reward": float(t == r), "response": {"usage": {"total_tokens": 3}}}
        for t in (0, 1)
        for r in (0, 1)
    ]
    async with fronted("mcqa") as f:
        for sent in ({"verify_responses": lines}, lines):
            found = (await f.client.post("/aggregate_metrics", json=sent)).json()
            assert found["agent_metrics"]["mean/reward"] == 0.5
            assert found["agent_metrics"]["pass@2/accuracy"] == 100.0
            assert [g["_ng_task_index"] for g in found["group_level_metrics"]] == [0, 1]
            assert [i["rollout_id"] for i in found["group_level_metrics"][1]["rollout_infos"]] == ["1:0", "1:1"]
            assert "mean/reward" in found["key_metrics"] or found["key_metrics"]
        empty = (await f.client.post("/aggregate_metrics", json={"verify_responses": []})).json()
        assert empty == {"agent_metrics": {}, "key_metrics": {}, "group_level_metrics": []}
        for bad in ({}, {"verify_responses": 3}, {"verify_responses": [3]}, {"verify_responses": [{"reward": 1}]}):
            reply = await f.client.post("/aggregate_metrics", json=bad)
            assert (reply.status_code, reply.json()["error"]["class"]) == (422, "data")


@pytest.mark.parametrize("path", ["/seed_session", "/verify", "/run", "/v1/responses"])
@pytest.mark.parametrize(
    "body",
    [
        b"", b"{", b"[]", b"null", b'"x"', b"\xff\xfe", b'{"responses_create_params": 3}', b"[" * 400 + b"]" * 400,
        b'{"responses_create_params": {"input": "x", "max_tokens": 3}, "response": {}, "max_tokens": 3}',
        b'{"responses_create_params": {"input": "x"}, "response": {"output": []}, "_ng_rollout_id": "../x", "input": 3}',
    ],
)  # fmt: skip
async def test_h_a_bad_body_is_a_typed_error(path, body):
    async with fronted("mcqa") as f:
        reply = await f.client.post(path, content=body)
        assert reply.status_code == 422, reply.text
        found = reply.json()
        assert found["error"]["class"] == "data"
        assert found["detail"] == found["error"]["message"]
        assert found["error"]["retryable"] is False


@pytest.mark.parametrize("fields", [{"verify_does": "raise"}, {"verify_does": "nan"}, {"verify_does": "none"}])
async def test_h_a_verifier_that_fails_is_a_typed_error_and_never_a_reward(fields):
    async with fronted("faulty") as f:
        reply = await f.client.post("/verify", json={**faulty(**fields), "response": message("x")})
        assert (reply.status_code, reply.json()["error"]["class"]) == (500, "verifier")
        assert "reward" not in reply.json()


async def test_h_a_seed_gives_what_the_environment_says_first_and_its_tools():
    async with fronted("aviary") as f:
        row = example("aviary")
        seeded = await f.client.post("/seed_session", json=row)
        found = seeded.json()
        assert found["items"]
        assert found["tools"]
        assert all(t["type"] == "function" for t in found["tools"])


async def test_h_a_seed_need_not_be_a_whole_row():
    async with fronted("example_single_tool_call") as f:
        assert (await f.client.post("/seed_session", json={})).status_code == 200


async def test_h_a_session_that_has_ended_is_gone_not_begun_anew():
    async with fronted(COUNTER, "mcqa") as f:
        gone = {SESSION_HEADER: "no-such-session"}
        reply = await f.client.post(f"/{COUNTER}/increment_counter", json={"count": 1}, headers=gone)
        assert (reply.status_code, reply.json()["error"]["type"]) == (410, "UnknownSession")
        body = {**example(COUNTER), "response": message("x")}
        assert (await f.client.post(f"/{COUNTER}/verify", json=body, headers=gone)).status_code == 410
        stateless = {**example("mcqa"), "response": message("\\boxed{A}")}
        assert (await f.client.post("/mcqa/verify", json=stateless, headers=gone)).status_code == 200


async def test_h_cpu_heavy_verifiers_run_in_processes_and_hold_nobody_up():
    row = example("instruction_following")
    async with fronted("instruction_following") as f:
        reply = await f.client.post("/verify", json={**row, "response": message("Hello.")})
        assert reply.status_code == 200
        assert f.services.clients.pool.pids, "it ran in the pool"


async def test_h_the_description_names_every_route_with_the_tools_schemas():
    async with fronted(COUNTER) as f:
        paths = (await f.client.get(f"/{COUNTER}/openapi.json")).json()["paths"]
        named = {"/seed_session", "/verify", "/aggregate_metrics", "/reverify_mode", "/run", "/v1/responses"}
        assert paths.keys() == {*named, "/increment_counter", "/get_counter_value"}
        schema = paths["/increment_counter"]["post"]["requestBody"]["content"]["application/json"]["schema"]
        assert schema["properties"]["count"]["type"] == "integer"


async def test_h_a_megabyte_is_verified_and_too_much_is_refused():
    async with fronted("mcqa", bounds=Bounds(body=2 << 20)) as f:
        body = {**example("mcqa"), "response": message("a" * (1 << 20))}
        assert (await f.client.post("/verify", json=body)).status_code == 200
        body = {**example("mcqa"), "response": message("a" * (2 << 20))}
        reply = await f.client.post("/verify", json=body)
        assert (reply.status_code, reply.json()["error"]["class"]) == (413, "capacity")
        assert json.loads(reply.text)["detail"].startswith("the body has 2,0")
