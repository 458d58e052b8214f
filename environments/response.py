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
        items = self.body.get("output")
        return [i for i in items if isinstance(i, Mapping)] if isinstance(items, list) else []

    @property
    def incomplete_reason(self) -> str | None:
        """Why the last call stopped early, or None; `unknown` when the engine gave no reason."""
        details = self.body.get("incomplete_details")
        if details is None:
            return None
        return str(details.get("reason") or "unknown") if isinstance(details, Mapping) else "unknown"

    @property
    def usage(self) -> Mapping[str, Any]:
        """Token counts as reported; empty when the engine reported none."""
        usage = self.body.get("usage")
        return usage if isinstance(usage, Mapping) else {}

    def flat_text(self) -> str:
        """The text of every `output_text` part of every assistant message, glued together with nothing between."""
        return "".join(self.output_texts())

    def joined_text(self) -> str:
        """The text of every part that has text, of every assistant message, one to a line, stripped."""
        return "\n".join(text for _, text in self._texts() if text).strip()

    def output_texts(self) -> list[str]:
        """The text of every `output_text` part of every assistant message, in order."""
        return [text for kind, text in self._texts() if kind == "output_text"]

    def function_calls(self) -> list[Item]:
        """Function calls in order of appearance."""
        return [i for i in self.output if i.get("type") == "function_call"]

    def _texts(self) -> Iterator[tuple[Any, str]]:
        """Type and text of every part with a text, of every assistant message; a plain text counts as one part."""
        for item in self.output:
            content = item.get("content") if is_assistant_message(item) else None
            if isinstance(content, str):
                yield "output_text", content
            for part in content if isinstance(content, list) else ():
                text = part.get("text") if isinstance(part, Mapping) else None
                if isinstance(text, str):
                    yield part.get("type"), text


def is_assistant_message(item: Item) -> bool:
    """Whether an item is a message by the model; an item without a type is one (platform.md A3)."""
    return item.get("type", "message") == "message" and item.get("role") == "assistant"
