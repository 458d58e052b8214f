"""`rollstream view`: stored rollouts for reading, from good files and bad ones."""

import json

import pytest
from typer.testing import CliRunner

from rollstream.cli import app

ROW = {
    "_ng_task_index": 0,
    "_ng_rollout_index": 1,
    "agent_ref": {"name": "a"},
    "reward": 0.25,
    "responses_create_params": {"input": [{"role": "user", "content": "What is it?\nSay."}]},
    "response": {
        "output": [
            {"type": "reasoning", "summary": [{"type": "summary_text", "text": "hm"}]},
            {"type": "function_call", "name": "look", "arguments": '{"x": 1}', "call_id": "c"},
            {"type": "function_call_output", "call_id": "c", "output": "found"},
            {"type": "message", "role": "assistant", "content": [{"type": "output_text", "text": "\x1b[31mred"}]},
            {"type": "web_search_call", "id": "w"},
        ]
    },
    "expected": "it",
}


@pytest.fixture
def view(tmp_path):
    def view(lines, *arguments):
        path = tmp_path / "r.jsonl"
        path.write_bytes(b"".join((x if isinstance(x, bytes) else json.dumps(x).encode()) + b"\n" for x in lines))
        return CliRunner().invoke(app, ["view", str(path), *arguments])

    return view


def test_a_rollout_is_shown_turn_by_turn(view):
    found = view([ROW])
    assert found.exit_code == 0
    assert found.stdout.splitlines() == [
        "── line 1: task 0, rollout 1, agent a, reward 0.25",
        "user: What is it?",
        "    Say.",
        "reasoning: hm",
        'call look: {"x": 1}',
        "output: found",
        "assistant: \\x1b[31mred",
        'web_search_call: {"type":"web_search_call","id":"w"}',
        "· expected: it",
        "",
    ]


def test_rollouts_are_chosen_and_the_rest_is_counted(view):
    rows = [{**ROW, "_ng_task_index": i, "reward": i / 4, "agent_ref": {"name": "ab"[i % 2]}} for i in range(4)]
    assert view(rows, "--task", "2").stdout.count("── line") == 1
    assert view(rows, "--below", "0.5").stdout.count("── line") == 2
    assert view(rows, "--agent", "b").stdout.count("── line") == 2
    found = view(rows, "--limit", "1")
    assert found.stdout.count("── line") == 1
    assert "3 more; --limit 0 shows all" in found.stderr
    none = view(rows, "--rollout", "7")
    assert (none.exit_code, "no rollout matches" in none.stderr) == (1, True)


def test_long_texts_are_cut_unless_asked_for(view):
    long = {**ROW, "expected": "x" * 5_000}
    assert "3,000 more characters; --whole" in view([long]).stdout
    assert "x" * 5_000 in view([long], "--whole").stdout


def test_bad_lines_are_named_and_cost_only_themselves(view):
    found = view(
        [b'{"torn": ', b"[1]", b"", ROW, {"responses_create_params": {"input": "text"}, "response": None, "agent_ref": 5}]
    )
    assert found.exit_code == 0
    assert found.stdout.count("── line") == 2
    assert "r.jsonl:1: not JSON, left out" in found.stderr
    assert "r.jsonl:2: not an object, left out" in found.stderr


def test_a_file_that_is_not_there_is_said(tmp_path):
    found = CliRunner().invoke(app, ["view", str(tmp_path / "no.jsonl")])
    assert (found.exit_code, "there is no such file" in found.stderr) == (2, True)
