"""The tools over MCP (platform.md H, "Tools over MCP")."""

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st
from support.fronts import example, fronted, message
from support.pipeline import faulty

from rollstream.front.mcp import TOKEN_HEADER, VERSIONS, CannotExposeError, Exposure
from schemas.errors import DataError

COUNTER = "example_session_state_mgmt"


async def rpc(client, method, params=None, token=None, **extra):
    headers = {TOKEN_HEADER: token} if token else {}
    body = {"jsonrpc": "2.0", "id": 1, "method": method, "params": params or {}, **extra}
    reply = await client.post("/mcp", json=body, headers=headers)
    assert reply.headers["content-type"] == "application/json"
    return reply.json()


async def seeded(client, row):
    found = (await client.post("/seed_session", json=row)).json()["mcp"]
    return found["headers"][TOKEN_HEADER]


async def call(client, token, name, arguments):
    return (await rpc(client, "tools/call", {"name": name, "arguments": arguments}, token))["result"]


async def test_h_it_is_opt_in():
    async with fronted(COUNTER) as f:
        assert (await f.client.post("/mcp", json={"jsonrpc": "2.0", "id": 1, "method": "ping"})).status_code == 404
        assert "mcp" not in (await f.client.post("/seed_session", json=example(COUNTER))).json()


async def test_h_the_handshake_agrees_on_a_version_and_offers_tools_alone():
    async with fronted(COUNTER, exposure=Exposure()) as f:
        for asked, given_ in (("2025-03-26", "2025-03-26"), ("1999-01-01", VERSIONS[0])):
            found = (await rpc(f.client, "initialize", {"protocolVersion": asked}))["result"]
            assert found["protocolVersion"] == given_
            assert found["capabilities"] == {"tools": {"listChanged": False}}
            assert found["serverInfo"]["name"] == COUNTER
        noted = await f.client.post("/mcp", json={"jsonrpc": "2.0", "method": "notifications/initialized"})
        assert (noted.status_code, noted.content) == (202, b"")
        assert (await rpc(f.client, "ping"))["result"] == {}
        assert (await f.client.get("/mcp")).status_code == 405
        assert (await f.client.delete("/mcp")).status_code == 405


async def test_h_the_seeds_reply_says_how_to_reach_the_session():
    async with fronted(COUNTER, exposure=Exposure()) as f:
        found = (await f.client.post("/seed_session", json=example(COUNTER))).json()["mcp"]
        assert {k: found[k] for k in ("server_name", "url_path", "transport")} == {
            "server_name": COUNTER, "url_path": "/mcp", "transport": "http",
        }  # fmt: skip
        assert list(found["headers"]) == ["X-NeMo-Gym-Session-Token"]


async def test_h_every_tool_is_listed_with_its_schema_and_nothing_else():
    async with fronted(COUNTER, exposure=Exposure()) as f:
        tools = (await rpc(f.client, "tools/list"))["result"]["tools"]
        assert [t["name"] for t in tools] == ["increment_counter", "get_counter_value"]
        assert tools[0]["inputSchema"]["properties"]["count"]["type"] == "integer"
        assert tools[0]["description"].startswith("Add a number")


async def test_h_a_call_works_on_its_session_and_gives_objects_as_structured_content():
    row = example(COUNTER)
    async with fronted(COUNTER, exposure=Exposure()) as f, f.another() as agent:
        token = await seeded(f.client, row)
        await call(agent, token, "increment_counter", {"count": 5})
        found = await call(agent, token, "get_counter_value", {})
        value = {"count": row["initial_count"] + 5}
        assert found == {
            "content": [{"type": "text", "text": json.dumps(value, separators=(",", ":"))}],
            "isError": False,
            "structuredContent": value,
        }
        assert (await f.client.post("/get_counter_value")).json() == value, "one session over both transports"


async def test_h_a_call_without_a_token_of_ours_is_refused():
    async with fronted(COUNTER, exposure=Exposure()) as f:
        token = await seeded(f.client, example(COUNTER))
        other = Exposure().metadata(COUNTER, type("S", (), {"key": "k"})(), {})["headers"][TOKEN_HEADER]
        body, _, signature = token.partition(".")
        for bad in (None, "x", f"{body}.", f"{body}.{signature[:-1]}", f"x{body}.{signature}", other):
            found = await rpc(f.client, "tools/call", {"name": "get_counter_value"}, bad)
            assert found["error"]["code"] == -32602, bad
        gone = Exposure(key=f.front.exposure.key).metadata(COUNTER, type("S", (), {"key": "gone"})(), {})
        found = await rpc(f.client, "tools/call", {"name": "get_counter_value"}, gone["headers"][TOKEN_HEADER])
        assert "seed again" in found["error"]["message"]


async def test_h_an_unknown_tool_and_a_failing_one_are_error_results():
    async with fronted(COUNTER, exposure=Exposure()) as f:
        token = await seeded(f.client, example(COUNTER))
        for name in ("nope", "verify", "seed_session", "aggregate_metrics", "mcp"):
            found = await call(f.client, token, name, {})
            assert found["isError"]
            assert found["content"][0]["text"] == f"no tool {name!r}; there are: increment_counter, get_counter_value"
        found = await call(f.client, token, "increment_counter", {"count": "x"})
        assert found["isError"]
        assert found["content"][0]["text"].startswith('HTTP 422 from POST /increment_counter: [{"type":"int_parsing"')
        assert "structuredContent" not in found
    async with fronted("faulty", exposure=Exposure()) as f:
        token = await seeded(f.client, faulty(tool_does="raise"))
        found = await call(f.client, token, "poke", {})
        assert found["content"][0]["text"].startswith("HTTP 500 from POST /poke: tool 'poke' of Faulty raised")


async def test_h_hooks_decide_what_a_session_may_call_and_what_is_offered():
    exposure = Exposure(
        allow=lambda row: {row["only"]}, offer=lambda tools: [t for t in tools if t["name"] != "increment_counter"]
    )
    async with fronted(COUNTER, exposure=exposure) as f:
        assert [t["name"] for t in (await rpc(f.client, "tools/list"))["result"]["tools"]] == ["get_counter_value"]
        token = await seeded(f.client, {**example(COUNTER), "only": "nothing"})
        assert (await rpc(f.client, "tools/list", token=token))["result"]["tools"] == []
        assert (await call(f.client, token, "get_counter_value", {}))["isError"]


async def test_h_tools_behind_a_catch_all_are_offered_in_the_session_of_the_row_that_names_them():
    row = example("workplace_assistant")
    named = ["company_directory_find_email_address", "calendar_search_events"]
    row["responses_create_params"]["tools"] = [{"type": "function", "name": n, "parameters": {"type": "object"}} for n in named]
    async with fronted("workplace_assistant", exposure=Exposure()) as f:
        assert (await rpc(f.client, "tools/list"))["result"]["tools"] == []
        token = await seeded(f.client, row)
        listed = (await rpc(f.client, "tools/list", token=token))["result"]["tools"]
        assert [t["name"] for t in listed] == named
        arguments = {"name": "a"}
        found = await call(f.client, token, "company_directory_find_email_address", arguments)
        over_http = await f.client.post("/company_directory_find_email_address", json=arguments)
        assert found["content"][0]["text"] == over_http.text
        assert over_http.status_code == 200


async def test_h_scoring_does_not_depend_on_the_transport_and_the_reply_shows_what_was_sent():
    row = example("single_step_tool_use_with_argument_comparison")
    name = "single_step_tool_use_with_argument_comparison"
    expected = row["expected_action"]
    assert expected["type"] == "function_call"
    item = {"type": "function_call", "call_id": "c", "name": expected["name"], "arguments": expected["arguments"]}
    async with fronted(name, exposure=Exposure()) as f:
        server = f.front.registry.variant_of(name)
        rewards = []
        for called in (expected["name"], f"mcp__{server}__{expected['name']}", f"mcp__other__{expected['name']}"):
            response = {**message("x"), "output": [{**item, "name": called}]}
            found = (await f.client.post("/verify", json={**row, "response": response})).json()
            assert found["response"] == response
            rewards.append(found["reward"])
        assert rewards == [1.0, 1.0, 0.0]


@pytest.mark.parametrize(
    ("body", "status", "code"),
    [
        (b"{", 400, -32700), (b"[]", 400, -32600), (b"3", 400, -32600), (b'{"jsonrpc":"2.0","id":1}', 400, -32600),
        (b'{"jsonrpc":"2.0","id":1,"method":"resources/list"}', 200, -32601),
        (b'{"jsonrpc":"2.0","id":1,"method":"tools/call","params":3}', 200, -32602),
    ],
)  # fmt: skip
async def test_h_what_is_no_request_is_a_json_rpc_error(body, status, code):
    async with fronted(COUNTER, exposure=Exposure()) as f:
        reply = await f.client.post("/mcp", content=body)
        assert (reply.status_code, reply.json()["error"]["code"]) == (status, code)


def test_h_what_cannot_be_offered_is_refused_at_the_start():
    class Named:
        tools = {}  # noqa: RUF012

    with pytest.raises(CannotExposeError, match="letters, digits"):
        Exposure(offer=lambda _: [{"name": "a.b"}]).tools(Named())
    assert issubclass(CannotExposeError, DataError), "the command shows it as a line"


@given(st.text(max_size=300))
def test_h_no_text_is_read_as_a_token(text):
    assert Exposure().read(text) is None


@given(st.recursive(st.none() | st.text() | st.integers(), lambda c: st.lists(c) | st.dictionaries(st.text(), c), max_leaves=8))
def test_h_any_response_can_be_looked_at(value):
    exposure = Exposure()
    assert exposure.as_verified("s", {"output": value}) == {"output": value}
    items = [{"type": "function_call", "name": "mcp__s__t", "arguments": value}, value]
    seen = exposure.as_verified("s", {"output": items})["output"]
    assert seen == [{"type": "function_call", "name": "t", "arguments": value}, value]
    assert items[0]["name"] == "mcp__s__t"
