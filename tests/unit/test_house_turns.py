"""Tests in several processes: some side by side, some alone; a failure shows the project's frames only."""

import contextlib
import itertools
import os
import subprocess
import sys
import threading
from pathlib import Path

from support.turns import Turns

ROOT = Path(__file__).parents[2]

HOLDS = """
import sys, time
from pathlib import Path
from support.turns import Turns
with Turns(Path(sys.argv[1])).alone():
    print("mine", flush=True)
    time.sleep(600)
"""

SUITE = """
import os, time
from pathlib import Path
import pytest

def note(word):
    with open(os.environ["TURNS_LOG"], "a") as log:
        log.write(word + "\\n")

def work(name):
    note(f"start {name}")
    time.sleep(0.1)
    note(f"end {name}")

@pytest.mark.parametrize("n", range(8))
def test_beside(n):
    work(f"beside{n}")

@pytest.mark.alone
@pytest.mark.parametrize("n", range(4))
def test_alone(n):
    work(f"alone{n}")
"""


def waiting(turn):
    """A thread that takes its turn; the event is set once it has it."""
    has = threading.Event()

    def take():
        with turn:
            has.set()

    thread = threading.Thread(target=take, daemon=True)
    thread.start()
    return has, thread


def test_any_number_run_side_by_side(tmp_path):
    turns = Turns(tmp_path)
    with turns.beside(), turns.beside(), Turns(tmp_path).beside():
        pass
    with turns.alone():
        pass


def test_one_that_is_alone_waits_for_those_before_and_holds_up_those_after(tmp_path):
    turns = Turns(tmp_path)
    with contextlib.ExitStack() as before:
        before.enter_context(turns.beside())
        alone, first = waiting(turns.alone())
        assert not alone.wait(0.2)
        after, second = waiting(turns.beside())
        assert not after.wait(0.2)  # else those who want to be alone might never be
    assert alone.wait(10)
    assert after.wait(10)
    first.join(10)
    second.join(10)


def test_a_process_that_is_killed_holds_nothing(tmp_path):
    env = {**os.environ, "PYTHONPATH": str(ROOT / "tests")}
    line = [sys.executable, "-c", HOLDS, str(tmp_path)]
    with subprocess.Popen(line, env=env, stdout=subprocess.PIPE, text=True) as other:
        assert other.stdout.readline() == "mine\n"
        beside, thread = waiting(Turns(tmp_path).beside())
        assert not beside.wait(0.1)
        other.kill()
    assert beside.wait(10)
    thread.join(10)


def test_a_marked_test_runs_alone_among_several_processes(tmp_path):
    (tmp_path / "test_suite.py").write_text(SUITE)
    log = tmp_path / "log"
    line = [
        sys.executable,
        "-m",
        "pytest",
        "-p",
        "tests.conftest",
        "-c",
        str(ROOT / "pyproject.toml"),
        "--rootdir",
        str(tmp_path),
    ]
    line += ["-n", "2", "--dist", "worksteal", "-p", "no:cacheprovider", str(tmp_path / "test_suite.py")]
    env = {**os.environ, "PYTHONPATH": str(ROOT), "TURNS_LOG": str(log)}
    done = subprocess.run(line, cwd=tmp_path, env=env, capture_output=True, text=True, timeout=50, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    words = log.read_text().splitlines()
    assert len(words) == 24
    for started, next_word in itertools.pairwise(words):
        if started.startswith("start alone"):
            assert next_word == started.replace("start", "end")
