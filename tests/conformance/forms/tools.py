"""`tools`: calls of one session in order, each with what the model reads."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from typing import Any

from environments.testing import EnvironmentHarness
from environments.tools import ToolReply
from tests.conformance.cases import Case
from tests.conformance.comparing import differences
from tests.conformance.forms.form import Form

_KNOWN = frozenset(
    {"name", "arguments", "output", "output_pattern", "output_json", "output_contains", "output_prefix", "http_status"}
)


class Tools(Form):
    """Makes the calls and compares the replies."""

    keys = frozenset({"tools"})

    def obstacle(self, case: Case) -> str | None:
        unknown = sorted({k for call in case.data.get("tools") or () for k in call} - _KNOWN)
        return f"tool calls with {', '.join(unknown)}" if unknown else None

    def play(self, case: Case, harness: EnvironmentHarness) -> list[str]:
        if "steps" in case.data:  # the same calls, turn by turn
            return []
        found = []
        for i, call in enumerate(case.data.get("tools") or ()):
            reply = harness.call(call["name"], _written(call["arguments"]), call_id=f"call_{i}")
            found += [f"tools.{i} ({call['name']}): {line}" for line in _wrong(call, reply)]
        return found


def _written(arguments: Any) -> str:
    """Arguments as the model wrote them: a text is that, anything else is given as what it says."""
    return arguments if isinstance(arguments, str) else json.dumps(arguments)


def _wrong(call: Mapping[str, Any], reply: ToolReply) -> list[str]:
    text, wrong = reply.output, []
    if "output" in call and text != call["output"]:
        wrong.append(f"expected {call['output']!r}")
    if "output_pattern" in call and not re.fullmatch(call["output_pattern"], text, re.DOTALL):
        wrong.append(f"expected a match of {call['output_pattern']!r}")
    if "output_contains" in call:
        parts = call["output_contains"]
        wrong += [f"expected {p!r} inside" for p in ([parts] if isinstance(parts, str) else parts) if p not in text]
    if "output_prefix" in call and not text.startswith(call["output_prefix"]):
        wrong.append(f"expected {call['output_prefix']!r} at the start")
    if "output_json" in call:
        wrong += differences({"output": call["output_json"]}, {"output": _parsed(text)})
    if "http_status" in call and reply.status != call["http_status"]:
        wrong.append(f"expected status {call['http_status']}, found {reply.status}")
    return [f"{line}, found {text!r}" for line in wrong]


def _parsed(text: str) -> Any:
    try:
        return json.loads(text)
    except ValueError:
        return text
