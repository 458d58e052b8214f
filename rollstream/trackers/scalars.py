"""What trackers are sent: scalars under the names of platform.md B12, and results as JSON texts without their heavy parts.

Pure functions over files and aggregates. Invariant: neither conversations' captures nor more than `MAX_ROWS` results or
`MAX_BYTES` of them leave this machine.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

from rollstream.runfiles.readers import JsonLines
from schemas import jsontext

MAX_ROWS = 10_000
MAX_BYTES = 256 << 20
"""Trackers show tables of this size; larger ones stall their pages."""

_HEAVY = ("ng_", "_ng_token_capture", "_ng_judge_calls")
_TOKENS = ("prompt_token_ids", "generation_token_ids", "generation_log_probs", "routed_experts")


def scalars(agents: Iterable[Mapping[str, Any]]) -> dict[str, float]:
    """`AGENT/KEY` and `key_metrics/AGENT/KEY` of every number of the aggregates; lists and texts are left out."""
    found: dict[str, float] = {}
    for agent in agents:
        name = agent["agent_ref"]["name"]
        for prefix, part in (("", "agent_metrics"), ("key_metrics/", "key_metrics")):
            found |= {f"{prefix}{name}/{key}": float(v) for key, v in agent[part].items() if _is_scalar(v)}
    return found


def rollout_texts(results: Path) -> tuple[list[str], int]:
    """Results as JSON texts, without trajectories, captures and token ids; and how many were left out."""
    texts: list[str] = []
    size = left = 0
    for line in JsonLines(results):
        if len(texts) >= MAX_ROWS or size >= MAX_BYTES:
            left += 1
            continue
        text = jsontext.dumps(_light(line)).decode()
        size += len(text)
        texts.append(text)
    return texts, left


def _light(line: Mapping[str, Any]) -> dict[str, Any]:
    light = {k: v for k, v in line.items() if not k.startswith(_HEAVY)}
    response = light.get("response")
    if isinstance(response, Mapping) and isinstance(response.get("output"), list):
        light["response"] = {**response, "output": [_without_tokens(item) for item in response["output"]]}
    return light


def _without_tokens(item: Any) -> Any:
    return {k: v for k, v in item.items() if k not in _TOKENS} if isinstance(item, Mapping) else item


def _is_scalar(value: Any) -> bool:
    return isinstance(value, int | float) and math.isfinite(value)
