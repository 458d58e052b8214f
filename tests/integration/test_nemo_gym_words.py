"""`ng_run` as a program: it serves a variant of one's own over the reference's routes until it is asked to end (platform.md E5)."""

import json
import os
import signal
import subprocess
import sys
import time
import urllib.request
from pathlib import Path

import pytest
from support.examples import free_port

pytestmark = [pytest.mark.integration, pytest.mark.timeout(120)]

CONFIG = """
policy_base_url: scripted
policy_model_name: scripted
lenient: {resources_servers: {mcqa: {entrypoint: app.py, domain: knowledge, grading_mode: lenient_boxed}}}
"""
WAIT_S = 60


def test_e5_ng_run_serves_a_variant_of_ones_own(tmp_path):
    port = free_port()
    (tmp_path / "mine.yaml").write_text(CONFIG)
    env = {k: v for k, v in os.environ.items() if not k.startswith("ROLLSTREAM_")} | {"XDG_DATA_HOME": str(tmp_path / "data")}
    program = str(Path(sys.executable).parent / "ng_run")
    with (tmp_path / "log").open("w") as log:
        words = ["+config_paths=[mine.yaml]", f"+head_server.port={port}"]
        server = subprocess.Popen([program, *words], cwd=tmp_path, env=env, stdout=log, stderr=log)
    try:
        said = _answer(server, f"http://127.0.0.1:{port}/server_instances", tmp_path / "log")
        assert {i["name"] for i in said} >= {"lenient", "lenient_simple_agent"}
    finally:
        server.send_signal(signal.SIGINT)
        code = server.wait(WAIT_S)
    log = (tmp_path / "log").read_text()
    assert f"ng_run is `rollstream serve --environment lenient --port {port}` here" in log
    assert code in (0, 130), log


def _answer(server, url, log):
    end = time.monotonic() + WAIT_S
    while time.monotonic() < end and server.poll() is None:
        try:
            with urllib.request.urlopen(url, timeout=5) as reply:
                return json.load(reply)
        except OSError:
            time.sleep(0.2)  # until the port is open
    raise AssertionError(f"no answer from {url}:\n{log.read_text()}")
