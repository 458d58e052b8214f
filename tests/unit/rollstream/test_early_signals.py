"""Signals between the start of a command and its event loop."""

import os
import signal
import subprocess
import sys
import threading

import pytest

from rollstream.runner.early import STOPPING, EarlySignals

SIGNALLED_WHILE_IMPORTING = """
import os, signal, sys
number = getattr(signal, sys.argv.pop())

class Interrupted:
    def find_spec(self, name, *_):
        if name == "rollstream.runner.run":
            os.kill(os.getpid(), number)

sys.meta_path.insert(0, Interrupted())
from rollstream.cli import main
main()
"""


@pytest.mark.parametrize("number", STOPPING)
def test_the_first_is_kept_the_second_ends_the_process_and_the_handlers_come_back(number):
    former = signal.getsignal(number)
    with EarlySignals.kept() as early:
        assert not early.came
        signal.raise_signal(number)
        assert early.came
        assert signal.getsignal(number) is signal.SIG_DFL
    assert signal.getsignal(number) is former


def test_beside_the_main_thread_there_is_nothing_to_keep():
    seen = []

    def elsewhere():
        with EarlySignals.kept() as early:
            seen.append((early.came, signal.getsignal(signal.SIGINT)))

    before = signal.getsignal(signal.SIGINT)
    thread = threading.Thread(target=elsewhere)
    thread.start()
    thread.join(10)
    assert seen == [(False, before)]


@pytest.mark.parametrize("name", ["SIGINT", "SIGTERM"])
def test_a_run_that_is_stopped_while_it_imports_says_so(name, tmp_path):
    line = [
        sys.executable,
        "-c",
        SIGNALLED_WHILE_IMPORTING,
        "run",
        "-e",
        "mcqa",
        "-b",
        "127.0.0.1:1",
        "-o",
        "out/r.jsonl",
        name,
    ]
    env = {k: v for k, v in os.environ.items() if not k.startswith("ROLLSTREAM_")}
    done = subprocess.run(line, cwd=tmp_path, env=env, capture_output=True, text=True, timeout=50, check=False)
    assert done.returncode == 130, done.stderr
    assert "stopped before the run had begun" in done.stderr
    assert "Traceback" not in done.stderr
    assert not (tmp_path / "out/r.jsonl").exists()
