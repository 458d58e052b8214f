"""Stored runs for tests of what reads them: materialized rows, results and failures of an environment, as files."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

import support
from support.pipeline import registry as pipeline_registry

from environments.discovery import Entry
from environments.manifest import AgentBlock, Manifest, Variant
from environments.registry import Registry

AGENT = {"type": "responses_api_agents", "name": "rescored_agent"}


def registry() -> Registry:
    """That of the pipeline's tests, and the environment `rescored`."""
    variant = Variant(agent=AgentBlock(name="rescored_agent", type="non_executing_simple_agent"))
    manifest = Manifest(name="rescored", description="", domain="tests", variants={"rescored": variant})
    entry = Entry(manifest, Path(next(iter(support.__path__))) / "rescored", "support.rescored")
    found = pipeline_registry()
    return Registry([*found.entries, entry], found.broken)


def said(text: str) -> dict[str, Any]:
    """A response of the policy."""
    part = {"type": "output_text", "text": text, "annotations": []}
    message = {"type": "message", "id": "m", "role": "assistant", "status": "completed", "content": [part]}
    return {"id": "resp_1", "object": "response", "status": "completed", "error": None, "output": [message], "usage": None}


def row(task: int, rollout: int = 0, **fields: Any) -> dict[str, Any]:
    """A materialized row."""
    identity = {"_ng_task_index": task, "_ng_rollout_index": rollout}
    return {"responses_create_params": {"input": f"task {task}"}, "agent_ref": AGENT, **fields, **identity}


def result(source: Mapping[str, Any], text: str, reward: float, **fields: Any) -> dict[str, Any]:
    """The result line of a row."""
    return {**source, "response": said(text), "reward": reward, **fields}


def failure(source: Mapping[str, Any], kind: str = "judge_failed", text: str | None = "so 1", **fields: Any) -> dict[str, Any]:
    """A line of the sidecar (A9)."""
    response = {} if text is None else {"response": said(text)}
    judged = {"_ng_failure_judge_error": "TimeoutError: ", "reward": 0.0} if kind == "judge_failed" else {}
    return {**source, **response, "_ng_failure_class": kind, **judged, **fields}


def write(path: Path, lines: Iterable[Any], tail: bytes = b"") -> Path:
    """A JSONL file; what is bytes already is a line as it is."""
    path.write_bytes(b"".join((x if isinstance(x, bytes) else json.dumps(x).encode()) + b"\n" for x in lines) + tail)
    return path


def read(path: Path) -> list[dict[str, Any]]:
    """The objects of a JSONL file."""
    return [json.loads(line) for line in path.read_text("utf-8").splitlines()]
