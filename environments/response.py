"""A Responses object as verifiers and agents read it.

Owns the reading rules shared by environments ("flat text", "joined text"; specs of the environments). Invariant: reading
never changes the response, and parts of an unknown kind contribute nothing.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

Item = Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class Response:
    """A Responses object (platform.md A5); `body` is its parsed JSON."""

    body: Mapping[str, Any]

    @property
    def output(self) -> list[Item]:
        """Output items in order, including tool outputs between steps."""
        return list(self.body.get("output") or [])

    @property
    def incomplete_reason(self) -> str | None:
        """Why the last call stopped early, or None; `unknown` when the engine gave no reason."""
        details = self.body.get("incomplete_details")
        return None if details is None else str(details.get("reason") or "unknown")

    @property
    def usage(self) -> Mapping[str, Any]:
        """Token counts as reported; empty when the engine reported none."""
        return self.body.get("usage") or {}

    def flat_text(self) -> str:
        """The text of every `output_text` part of every assistant message, glued together with nothing between."""
        return "".join(str(p.get("text") or "") for p in self._parts() if p.get("type") == "output_text")

    def joined_text(self) -> str:
        """The text of every part that has text, of every assistant message, one to a line, stripped."""
        return "\n".join(str(p["text"]) for p in self._parts() if p.get("text")).strip()

    def function_calls(self) -> list[Item]:
        """Function calls in order of appearance."""
        return [i for i in self.output if i.get("type") == "function_call"]

    def _parts(self) -> Iterator[Mapping[str, Any]]:
        for item in self.output:
            if is_assistant_message(item):
                content = item.get("content")
                if isinstance(content, str):
                    yield {"type": "output_text", "text": content}
                else:
                    yield from (p for p in content or () if isinstance(p, Mapping))


def is_assistant_message(item: Item) -> bool:
    """Whether an item is a message by the model; an item without a type is one (platform.md A3)."""
    return item.get("type", "message") == "message" and item.get("role") == "assistant"
