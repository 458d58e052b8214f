"""Rollouts over a real model server: mlx-lm on the CPU with tiny random weights (`support/tiny_engine.py`), on a real Kafka.

Needs an interpreter with `mlx-lm`: this one (`uv sync --all-extras --group real-engine`), or the one that the environment
variable REAL_ENGINE_PYTHON names. `./check engine` installs it and runs this file. It is no part of the ordinary set-up,
which it would make 355 MB larger.
"""

import importlib.util
import json
import os
import socket
import subprocess
import sys
import urllib.request

import pytest
from support import tiny_engine
from support.pipeline import endpoint, faulty, mcqa, running

from services.models.template import ChatTemplate

PYTHON = os.environ.get("REAL_ENGINE_PYTHON") or (sys.executable if importlib.util.find_spec("mlx_lm") else None)

pytestmark = [
    pytest.mark.integration,
    pytest.mark.timeout(180),
    pytest.mark.skipif(PYTHON is None, reason="needs mlx-lm: ./check engine"),
]

LETTERS = "abcdefghijklmnopqrstuvwxyz"
TURNS = 3


def run(*arguments, **more):
    return subprocess.run(
        [PYTHON, tiny_engine.__file__, *map(str, arguments)], check=True, capture_output=True, timeout=120, **more
    )


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    made = tmp_path_factory.mktemp("tiny")
    run("make", made)
    return made


@pytest.fixture(scope="module")
def engine(folder):
    """The server's base URL."""
    with socket.socket() as s:
        s.bind(("127.0.0.1", 0))
        port = s.getsockname()[1]
    with (folder / "server.log").open("wb") as log:
        server = subprocess.Popen([PYTHON, tiny_engine.__file__, "serve", folder, str(port)], stdout=log, stderr=log)
    try:
        wait_for(server, f"http://127.0.0.1:{port}/health", folder / "server.log")
        yield f"http://127.0.0.1:{port}/v1"
    finally:
        server.kill()
        server.wait(10)


def wait_for(server, url, log):
    import time

    end = time.monotonic() + 90
    while time.monotonic() < end:
        assert server.poll() is None, log.read_text()
        try:
            with urllib.request.urlopen(url, timeout=5):
                return
        except OSError:
            time.sleep(0.1)
    pytest.fail(log.read_text())


@pytest.fixture(scope="module")
def template(folder):
    return ChatTemplate.load(folder)


@pytest.fixture(scope="module")
def allowed(template):
    """Letters and the end: what they say, tokenized again, gives their tokens back, so that many turns extend each other."""
    return [*template.encode(LETTERS), 257]


def policy(url, folder, allowed, **more):
    bias = {str(i): -1000.0 for i in range(258) if i not in allowed}
    options = {
        "engine": "chat",
        "return_token_id_information": True,
        "tokenizer": folder,
        "on_prefix_mismatch": "error",
        "sampling_overrides": {"temperature": 1.0, "logit_bias": bias, "max_tokens": 600},
        **more,
    }
    made = endpoint(url, options=options, timeouts={"first_byte_s": 60.0, "body_s": 10.0, "call_s": 100.0})
    return made.model_copy(update={"name": "default_model"})


def scored(folder, triples):
    """What the same weights say about the tokens, computed apart from the server."""
    return json.loads(run("score", folder, input=json.dumps(triples).encode()).stdout)


@pytest.mark.timeout(180)
async def test_rollouts_of_many_turns_keep_the_tokens_that_the_engine_sampled(
    kafka, topics, tmp_path, engine, folder, template, allowed
):
    """platform.md D8, D9, I6."""
    rows = [faulty("faulty_partner", moves=TURNS, number=n) for n in range(4)]
    async with running(kafka, topics, tmp_path, policy(engine, folder, allowed)) as pipe:
        await pipe.send(*rows)
        ended = await pipe.ended(len(rows), timeout_s=120)
    assert [(f.failure_class, f.message) for f in ended.failures] == []
    triples, log_probs = [], []
    for line in ended.lines:
        turns = [i for i in line["response"]["output"] if "generation_token_ids" in i]
        assert len(turns) == TURNS
        seen = []
        for turn in turns:
            prompt, generated = turn["prompt_token_ids"], turn["generation_token_ids"]
            assert prompt[: len(seen)] == seen
            assert generated == [*template.encode(turn["content"][0]["text"]), 257]
            seen = prompt + generated
            triples.append([prompt, generated, allowed])
            log_probs += turn["generation_log_probs"]
    again = [p for call in scored(folder, triples) for p in call]
    assert log_probs == pytest.approx(again, abs=0.05)
    assert len(set(log_probs)) > 10


async def test_bytes_that_are_no_text_keep_their_tokens(kafka, topics, tmp_path, engine, folder, template):
    """D9: what was sampled cannot be told from its text, and reaches the line all the same."""
    every = list(range(258))
    options = {"sampling_overrides": {"temperature": 1.0, "max_tokens": 40}}
    async with running(kafka, topics, tmp_path, policy(engine, folder, every, **options)) as pipe:
        await pipe.send(*(mcqa(n) for n in range(4)))
        ended = await pipe.ended(4, timeout_s=120)
    assert len(ended.lines) == 4
    items = [line["response"]["output"][-1] for line in ended.lines]
    assert any("\ufffd" in i["content"][0]["text"] for i in items)
    again = scored(folder, [[i["prompt_token_ids"], i["generation_token_ids"], every] for i in items])
    assert [p for i in items for p in i["generation_log_probs"]] == pytest.approx([p for call in again for p in call], abs=0.05)
    assert all(i["prompt_token_ids"][0] == 256 for i in items)
    for line in ended.lines:
        usage = line["response"]["usage"]
        (item,) = line["response"]["output"]
        assert (usage["input_tokens"], usage["output_tokens"]) == (
            len(item["prompt_token_ids"]),
            len(item["generation_token_ids"]),
        )


async def test_text_completions_of_a_conversation_rendered_here(kafka, topics, tmp_path, engine, folder, allowed):
    """D3: `completions` with `render_chat_template`; the engine's special tokens are ours, so its count agrees."""
    bias = {str(i): -1000.0 for i in range(258) if i not in allowed}
    sampling = {"temperature": 1.0, "logit_bias": bias, "max_tokens": 600, "logprobs": True}
    options = {"engine": "completions", "render_chat_template": True, "sampling_overrides": sampling}
    async with running(kafka, topics, tmp_path, policy(engine, folder, allowed, **options)) as pipe:
        await pipe.send(*(mcqa(n) for n in range(3)))
        ended = await pipe.ended(3, timeout_s=120)
    assert [(f.failure_class, f.message) for f in ended.failures] == []
    items = [line["response"]["output"][-1] for line in ended.lines]
    again = scored(folder, [[i["prompt_token_ids"], i["generation_token_ids"], allowed] for i in items])
    assert [p for i in items for p in i["generation_log_probs"]] == pytest.approx([p for call in again for p in call], abs=0.05)
