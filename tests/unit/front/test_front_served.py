"""`rollstream serve` as a process: ports, signals, clients that leave (platform.md H)."""

import asyncio
import json
import os
import signal
import socket
import subprocess
import sys
import threading

import httpx
import pytest
import yaml
from support.fronts import example, message

from environments.extras import Extras
from rollstream.cli import app
from rollstream.scripted import Latency, Options, ScriptedModel

_MAIN = [sys.executable, "-c", "from rollstream.cli import main; main()"]


@pytest.fixture
def serve(tmp_path):
    """Starts servers; gives the process and what it says of where it is."""
    started = []

    def start(*arguments):
        env = {k: v for k, v in os.environ.items() if not k.startswith("ROLLSTREAM_")}
        process = subprocess.Popen(
            [*_MAIN, "serve", "--json", *arguments],
            cwd=tmp_path,
            env=env,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )
        watch = threading.Timer(40, process.kill)
        watch.start()
        started.append((process, watch))
        line = process.stdout.readline()
        assert line, process.stderr.read()
        return process, json.loads(line)

    yield start
    for process, watch in started:
        watch.cancel()
        process.kill()
        process.communicate()


def test_several_environments_are_found_by_the_head_and_called_on_their_own_ports(serve):
    names = ("mcqa", "example_single_tool_call")
    process, found = serve("-e", names[0], "-e", names[1], "-m", "scripted", "--port", "0")
    assert len({found["head"], *found["environments"].values()}) == 3
    config = yaml.safe_load(httpx.get(f"{found['head']}/global_config_dict_yaml").json())
    for name in names:
        ((place,),) = (config[name]["resources_servers"].values(),)
        assert f"http://{place['host']}:{place['port']}" == found["environments"][name]
    body = {**example("mcqa"), "response": message("\\boxed{A}")}
    assert httpx.post(f"{found['environments']['mcqa']}/verify", json=body).status_code == 200
    weather = found["environments"]["example_single_tool_call"]
    assert httpx.post(f"{weather}/run", json=example("example_single_tool_call"), timeout=30).json()["reward"] == 1.0
    process.send_signal(signal.SIGTERM)
    assert process.wait(20) == 0


def test_a_client_that_leaves_ends_its_rollout(serve):
    async def scenario():
        async with ScriptedModel(Options(latency=Latency(seconds=60))) as model:
            process, found = await asyncio.to_thread(serve, "-e", "mcqa", "-m", model.url, "--port", "0")
            async with httpx.AsyncClient(base_url=found["head"]) as client:
                with pytest.raises(httpx.ReadTimeout):
                    await client.post("/run", json=example("mcqa"), timeout=1.5)
                for _ in range(200):
                    if (await client.get("/status")).json()["mcqa"]["runs"] == 0:
                        break
                    await asyncio.sleep(0.02)
                else:
                    pytest.fail("the rollout went on for nobody")
            process.send_signal(signal.SIGINT)
            assert await asyncio.to_thread(process.wait, 20) == 0

    asyncio.run(scenario())


@pytest.mark.parametrize(
    ("arguments", "code", "said"),
    [
        ((), 2, "--environment NAME"),
        (("-e", "mqca"), 1, "did you mean 'mcqa'"),
        (("-e", "mcqa", "--host", "127.0.0.1", "--port", "TAKEN"), 2, "in use"),
        (("-e", "mcqa", "-m", "nonsense"), 2, "--model nonsense"),
    ],
)
def test_what_cannot_be_served_is_one_line(tmp_path, monkeypatch, capsys, arguments, code, said):
    monkeypatch.chdir(tmp_path)
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        words = [str(taken.getsockname()[1]) if a == "TAKEN" else a for a in arguments]
        assert exit_code(["serve", *words]) == code
    assert said in capsys.readouterr().err


def test_without_its_packages_the_command_says_what_installs_them(monkeypatch, capsys):
    monkeypatch.setattr(Extras, "lacking", lambda *_: "it needs fastapi, not installed here: pip install 'rollstream[http]'")
    assert exit_code(["serve", "-e", "mcqa"]) == 2
    assert "pip install 'rollstream[http]'" in capsys.readouterr().err


def exit_code(words):
    with pytest.raises(SystemExit) as caught:
        app(words)
    return caught.value.code
