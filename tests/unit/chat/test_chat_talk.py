"""`rollstream chat`: tasks and typed texts at a terminal, or from a pipe."""

import contextlib
import io
import os
import signal
import socket
import subprocess
import sys

import pytest
from rich.console import Console
from support.fronts import example
from support.pipeline import KEY, faulty, registry

from rollstream.chat.loop import ChatLoop
from rollstream.chat.screen import MAX_LINES, Screen
from rollstream.chat.talk import Talk, fits, opening
from rollstream.cli import app
from rollstream.settings.model import Settings
from services.direct.playing import Moved

COUNTER = "example_session_state_mgmt"


@contextlib.contextmanager
def talking(name, rows=None, **settings):
    out = io.StringIO()
    with ChatLoop(Settings(**settings)) as loop:
        screen = Screen(Console(file=out, width=200, highlight=False))
        talk = Talk(
            loop.services, registry().binding(name, None), rows or [example(name, n) for n in range(2)], screen, loop.wait
        )
        try:
            yield talk, out
        finally:
            talk.end()


def test_a_task_is_shown_turn_by_turn_to_its_score():
    with talking(COUNTER) as (talk, out):
        assert talk.line("0")
    said = out.getvalue().splitlines()
    assert said[0].startswith("user: Add 4")
    wanted = [
        "turn 1: policy",
        "call: increment_counter",
        "increment_counter: {",
        "turn 2: policy",
        "call: get_counter_value",
        "turn 3",
    ]
    places = [next(i for i, line in enumerate(said) if line.startswith(w)) for w in wanted]
    assert places == sorted(places)
    assert said[-1].startswith("reward ")
    assert talk.failed == 0


def test_typed_texts_go_on_over_one_state_and_new_begins_again():
    with talking(COUNTER) as (talk, out):
        talk.line("please count")
        talk.line("and again")
        first = talk._conversation.episode
        turns = [i["content"] for i in talk._conversation.items if i.get("role") == "user"]
        assert turns == ["please count", "and again"]
        talk.line("/new")
        talk.line("once more")
        assert talk._conversation.episode is not first
    assert "not scored: what was typed is not a task of this environment" in out.getvalue()
    assert talk.failed == 0


def test_a_typed_text_is_scored_where_the_environment_can():
    with talking("example_single_tool_call") as (talk, out):
        talk.line("What is it like in Oslo?")
    assert "get_weather: {" in out.getvalue()
    assert "reward 1" in out.getvalue()


def test_what_a_partner_says_is_shown():
    with talking("faulty_partner", [faulty("faulty_partner", moves=2)]) as (talk, out):
        talk.line("0")
    assert "user: heard" in out.getvalue()
    assert "the environment has ended the rollout" in out.getvalue()


def test_what_fails_is_said_with_its_class_and_the_next_line_goes_on():
    rows = [faulty(tools=True, tool_does="raise"), faulty(verify_does="raise"), faulty()]
    with talking("faulty", rows) as (talk, out):
        for line in ("0", "1", "2", "7", "/nonsense", "", "/help", "/tasks"):
            assert talk.line(line)
        assert not talk.line("/quit")
    said = out.getvalue()
    assert "failed (tool): tool 'poke' of Faulty raised" in said
    assert "failed (verifier): verify of Faulty raised" in said
    assert "reward 1" in said
    assert "there is no task 7: there are 3, from 0" in said
    assert "no command /nonsense" in said
    assert talk.failed == 3


def test_a_model_that_cannot_be_reached_is_said_without_its_key():
    model = {"url": "http://127.0.0.1:9/v1", "name": "m", "api_key": KEY, "max_tries": 1}
    with talking("mcqa", model=model) as (talk, out):
        talk.line("0")
    assert "failed (model)" in out.getvalue()
    assert KEY not in out.getvalue()


def test_words_of_others_are_drawn_as_plain_text():
    out = io.StringIO()
    hostile = "\x1b[31mred\x1b]0;title\x07 [bold]no[/bold] \u202egnp"
    Screen(Console(file=out, width=200, force_terminal=False)).items([{"role": hostile, "content": hostile}])
    said = out.getvalue()
    assert "\x1b" not in said
    assert "\u202e" not in said
    assert said.count("[bold]no[/bold]") == 2


@pytest.mark.parametrize(
    "item",
    [
        {}, {"type": "message"}, {"role": None, "content": None}, {"role": "user", "content": [3, None, {"type": "input_image"}]},
        {"type": "reasoning", "summary": [{"text": "t"}]}, {"type": "function_call"}, {"type": "function_call_output", "output": [{}]},
        {"type": "web_search_call", "x": 1},
    ],
)  # fmt: skip
def test_any_item_can_be_drawn(item):
    out = io.StringIO()
    Screen(Console(file=out, width=200))(Moved((item,), done=False))
    assert len(out.getvalue().splitlines()) > 1


def test_of_a_very_long_text_the_beginning_is_shown():
    out = io.StringIO()
    Screen(Console(file=out, width=200)).items([{"role": "user", "content": "x\n" * 5_000 + "y" * (1 << 20)}])
    assert len(out.getvalue()) < 20_000
    assert f"… {5_001 - MAX_LINES:,} more lines" in out.getvalue()


def test_the_opening_is_what_the_first_example_says_before_any_user():
    environment = registry().binding("example_single_tool_call", None).environment
    row = example("example_single_tool_call")
    made = opening([row], environment)
    assert made["input"] == row["responses_create_params"]["input"][:1]
    assert made["tools"] == row["responses_create_params"]["tools"]
    assert [t["name"] for t in opening([], environment)["tools"]] == ["get_weather"]
    assert not fits(registry().binding(COUNTER, None).environment, {"responses_create_params": {"input": []}})


def test_lines_are_piped_in_and_the_exit_code_tells_what_had_no_score(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr("signal.signal", lambda *_: None)
    for lines, code in (("0\n/quit\nnever\n", 0), ("1\n99\n", 3), ("", 0)):
        monkeypatch.setattr(sys, "stdin", io.StringIO(lines))
        assert exit_code(["chat", "-e", COUNTER, "-m", "scripted"]) == code
    said = capsys.readouterr().out
    assert said.count("reward ") == 2
    assert "never" not in said


@pytest.mark.parametrize(
    ("words", "code", "said"),
    [
        (["-e", "mcqa", "--task", "0", "--text", "x"], 2, "either --task or --text"),
        (["-e", "mqca"], 1, "did you mean 'mcqa'"),
        (["-e", "mcqa", "--task", "99", "-m", "scripted"], 3, "there is no task 99"),
        (["-e", "mcqa", "--task", "0", "-m", "scripted"], 0, "reward "),
        (["-e", COUNTER, "--text", "hi", "-m", "scripted"], 0, "not scored"),
    ],
)
def test_one_task_or_one_text_and_the_end(tmp_path, monkeypatch, capsys, words, code, said):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr("signal.signal", lambda *_: None)
    assert exit_code(["chat", *words]) == code
    captured = capsys.readouterr()
    assert said in captured.out + captured.err


def exit_code(words):
    with pytest.raises(SystemExit) as caught:
        app(words)
    return caught.value.code


def test_ctrl_c_stops_what_runs_and_at_the_prompt_ends(tmp_path):
    """A model that never answers: the first signal ends the rollout, the next one the program, and nothing is left behind."""
    with socket.socket() as silent:
        silent.bind(("127.0.0.1", 0))
        silent.listen()
        url = f"http://127.0.0.1:{silent.getsockname()[1]}/v1/m"
        words = [sys.executable, "-c", "from rollstream.cli import main; main()", "chat", "-e", "mcqa", "-m", url]
        env = {**{k: v for k, v in os.environ.items() if not k.startswith("ROLLSTREAM_")}, "PYTHONUNBUFFERED": "1"}
        chat = subprocess.Popen(
            words, cwd=tmp_path, env=env, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
        )
        try:
            chat.stdin.write("0\n")
            chat.stdin.flush()
            _until(chat, "turn 1")
            silent.accept()  # the call is under way
            chat.send_signal(signal.SIGINT)
            _until(chat, "stopped")
            chat.send_signal(signal.SIGINT)
            assert chat.wait(20) == 130
            assert "Traceback" not in chat.stderr.read()
        finally:
            chat.kill()
            chat.communicate()


def _until(process, wanted):
    for line in process.stdout:
        if line.startswith(wanted):
            return
    pytest.fail(f"{wanted!r} never came: {process.stderr.read()}")
