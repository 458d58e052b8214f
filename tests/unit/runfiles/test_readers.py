from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from rollstream.runfiles.readers import JsonLines, MalformedLineError, Tries, done_keys, failed_tries


def text(*lines: Any) -> bytes:
    return b"".join(json.dumps(x).encode() + b"\n" for x in lines)


def line(task: int, rollout: int = 0, **more: Any) -> dict[str, Any]:
    return {"_ng_task_index": task, "_ng_rollout_index": rollout, **more}


@settings(max_examples=100, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(st.integers(1, 4), st.data())
def test_a_file_cut_at_any_byte_gives_its_whole_lines(tmp_path: Path, count: int, data: Any) -> None:
    whole = text(*(line(i, text="é") for i in range(count)))
    cut = data.draw(st.integers(0, len(whole)))
    path = tmp_path / "out.jsonl"
    path.write_bytes(whole[:cut])
    reader = JsonLines(path)
    found = [x["_ng_task_index"] for x in reader]
    ends = [i + 1 for i, b in enumerate(whole) if b == ord("\n")]
    complete = sum(cut >= e - 1 for e in ends)  # a line that lacks only its line end is whole
    assert found == list(range(complete))
    rest = cut - (ends[complete - 1] if complete else 0)
    assert (reader.torn is not None) == (rest > 0)
    if reader.torn is not None:
        assert (reader.torn.number, reader.torn.size) == (complete + 1, rest)
        assert str(reader.torn).startswith(f"{path}:{complete + 1}: the last line is cut off")


@pytest.mark.parametrize("bad", [b'{"a":\n', b"[1]\n", b"7\n"])
def test_a_broken_line_inside_is_named(tmp_path: Path, bad: bytes) -> None:
    path = tmp_path / "out.jsonl"
    path.write_bytes(text(line(0)) + bad + text(line(1)))
    with pytest.raises(MalformedLineError, match=r"out\.jsonl:2: "):
        list(JsonLines(path))


def test_keys_and_tries(tmp_path: Path) -> None:
    results, failures = tmp_path / "o.jsonl", tmp_path / "o_failures.jsonl"
    results.write_bytes(text(line(1), line(2, 1), {"reward": 1}))
    assert done_keys(results) == {(1, 0), (2, 1)}
    assert failed_tries(failures) == {}
    failures.write_bytes(
        text(
            line(1, _ng_failure_class="model", outcome="failed"),
            line(1, _ng_failure_class="timeout", _ng_attempt_index=1),
            line(2, _ng_failure_class="data", _ng_failure_terminal=True),
            line(2, _ng_failure_class="data", outcome="duplicate"),
            line(3, _ng_failure_class="data", outcome="superseded"),
            {"_ng_failure_class": "data"},
        )
    )
    assert failed_tries(failures) == {(1, 0): Tries(2, "timeout", terminal=False), (2, 0): Tries(1, "data", terminal=True)}
