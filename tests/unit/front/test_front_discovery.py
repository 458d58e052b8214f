"""The head server's routes, as trainers and reward functions use them to find an environment (platform.md G4, I1, I5)."""

import json

import yaml
from support.fronts import PORT, client_of, example, fronted, message
from support.pipeline import KEY

from rollstream.front.discovery import Address


async def test_g4_the_configuration_is_a_yaml_text_in_a_json_string_and_leads_to_host_and_port():
    async with fronted("mcqa", "example_single_tool_call", places={"mcqa": Address("127.0.0.1", 5_001)}) as f:
        reply = await f.client.get("/global_config_dict_yaml")
        found = yaml.safe_load(json.loads(reply.text))
        assert yaml.safe_load(yaml.safe_load(reply.text)) == found, "read as YAML first, as some clients do"
        agent = found["mcqa_simple_agent"]["responses_api_agents"]["simple_agent"]
        assert (agent["host"], agent["port"]) == ("127.0.0.1", 5_001)
        assert agent["resources_server"] == {"type": "resources_servers", "name": "mcqa"}
        server = found["mcqa"]["resources_servers"]["mcqa"]
        assert (server["host"], server["port"], server["domain"]) == ("127.0.0.1", 5_001, "knowledge")
        other = found["example_single_tool_call"]["resources_servers"]["example_single_tool_call"]
        assert other["port"] == PORT
        assert found["head_server"] == {"host": "127.0.0.1", "port": PORT}


async def test_e1_no_secret_is_told():
    model = {"url": "https://models.example/v1", "name": "m", "api_key": KEY}
    async with fronted("mcqa", settings={"model": model}) as f:
        for path in ("/global_config_dict_yaml", "/server_instances", "/status", "/openapi.json", "/mcqa/openapi.json"):
            assert KEY not in (await f.client.get(path)).text
        found = yaml.safe_load((await f.client.get("/global_config_dict_yaml")).json())
        assert found["policy_api_key"] == "********"
        assert found["policy_model_name"] == "m"


async def test_g4_the_instances_are_named_with_where_they_are():
    async with fronted("mcqa") as f:
        found = (await f.client.get("/server_instances")).json()
        keys = {"process_name", "server_type", "name", "host", "port", "url", "entrypoint", "pid", "uptime_seconds", "status"}
        assert [i.keys() for i in found] == [keys, keys]
        assert [(i["server_type"], i["name"]) for i in found] == [
            ("resources_servers", "mcqa"), ("responses_api_agents", "mcqa_simple_agent"),
        ]  # fmt: skip
        assert {(i["url"], i["status"]) for i in found} == {(f"http://127.0.0.1:{PORT}", "success")}


async def test_h_several_environments_each_have_a_port_and_a_path():
    places = {"mcqa": Address("127.0.0.1", 5_001), "example_single_tool_call": Address("127.0.0.1", 5_002)}
    async with fronted(*places, places=places) as f:
        body = {**example("mcqa"), "response": message("\\boxed{A}")}
        async with client_of(f.door, 5_001) as mcqa, client_of(f.door, 5_002) as weather:
            assert (await mcqa.post("/verify", json=body)).json()["agent_ref"]["name"] == "mcqa_simple_agent"
            assert (await weather.post("/get_weather", json={"city": "Oslo"})).status_code == 200
            assert (await mcqa.post("/get_weather", json={"city": "Oslo"})).status_code == 404
            assert (await mcqa.post("/example_single_tool_call/get_weather", json={"city": "Oslo"})).status_code == 200
        assert (await f.client.post("/verify", json=body)).status_code == 404, "the head's own port means no environment"
        assert (await f.client.post("/mcqa/verify", json=body)).status_code == 200
