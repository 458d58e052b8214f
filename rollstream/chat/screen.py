"""What a rollout looks like at a terminal, step by step.

Invariant: words of rows, models and tools are drawn as plain text: no markup, no escape sequences, and of very long ones the
beginning.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from rich.console import Console
from rich.text import Text

from environments.response import Item, Response
from environments.verdict import Verdict
from rollstream.text import printable
from schemas import jsontext
from schemas.errors import RolloutError
from services.direct.playing import Asked, Called, Event, Moved, Replied

MAX_LINES = 60
"""Lines of one text; what a person reads of it."""

MAX_LINE = 2_000
_MAX_FIELD = 200
_STYLES = {"user": "cyan", "system": "dim", "developer": "dim", "assistant": "bold"}


class Screen:
    """Draws on `console`."""

    def __init__(self, console: Console) -> None:
        self._console = console

    def items(self, items: Sequence[Item]) -> None:
        """Items of a conversation."""
        for item in items:
            kind = item.get("type", "message")
            if kind == "message":
                role = str(item.get("role", "?"))
                self._say(role, _text(item.get("content")), _STYLES.get(role, ""))
            elif kind == "reasoning":
                self._say("reasoning", _text(item.get("summary")) or _text(item.get("content")), "dim italic")
            elif kind == "function_call":
                self._say("call", f"{item.get('name')} {item.get('arguments')}", "yellow")
            elif kind == "function_call_output":
                self._say("output", _text(item.get("output")), "green")
            else:
                self._say(str(kind), jsontext.dumps(item).decode(), "dim")

    def __call__(self, event: Event) -> None:
        """Draw what has happened."""
        if isinstance(event, Asked):
            names = ", ".join(dict.fromkeys(r.model for r in event.requests))
            several = f" ({len(event.requests)} calls at once)" if len(event.requests) > 1 else ""
            self.note(f"turn {event.turn}: {names}{several}")
        elif isinstance(event, Replied):
            for response in event.responses:
                self._reply(response)
        elif isinstance(event, Called):
            status = "" if event.reply.status == 200 else f" {event.reply.status}"  # noqa: PLR2004 - HTTP's OK
            self._say(f"{event.call.name}{status}", event.reply.output, "green" if not status else "red")
        else:
            self._moved(event)

    def note(self, text: str) -> None:
        """A line of our own."""
        self._console.print(Text(printable(text), style="dim"), soft_wrap=True)

    def verdict(self, verdict: Verdict) -> None:
        """The score, its parts and what else the verifier says."""
        self._console.print(Text(f"reward {verdict.reward:g}", style="bold green" if verdict.reward > 0 else "bold red"))
        for name, value in {**(verdict.components or {}), **verdict.fields}.items():
            self._say(f"  {name}", jsontext.dumps(value).decode()[:_MAX_FIELD], "")
        if verdict.mask_sample:
            self.note("  masked: not for the loss")

    def failure(self, error: RolloutError) -> None:
        """Why a rollout has no score."""
        detail = f" ({error.detail})" if error.detail else ""
        self._console.print(
            Text(printable(f"failed ({error.failure_class}): {error}{detail}"), style="bold red"), soft_wrap=True
        )

    def _reply(self, response: Response) -> None:
        self.items(response.output)
        if response.incomplete_reason is not None:
            self.note(f"incomplete: {response.incomplete_reason}")

    def _moved(self, event: Moved) -> None:
        if event.items:
            self.note("environment:")
            self.items(event.items)
        if event.done:
            self.note("the environment has ended the rollout")

    def _say(self, label: str, text: str, style: str) -> None:
        lines = text.splitlines() or [""]
        shown = [printable(line, MAX_LINE) for line in lines[:MAX_LINES]]
        if len(lines) > MAX_LINES:
            shown.append(f"… {len(lines) - MAX_LINES:,} more lines")
        label = printable(label, _MAX_FIELD)
        joined = ("\n" + " " * (len(label) + 2)).join(shown)
        self._console.print(Text.assemble((f"{label}: ", "dim"), (joined, style)), soft_wrap=True)


def _text(value: Any) -> str:
    """The words of a content: texts of its parts, one after another; what is no text is named by its type."""
    if isinstance(value, str):
        return value
    if not isinstance(value, list):
        return "" if value is None else str(value)
    parts = [p if isinstance(p, Mapping) else {"text": str(p)} for p in value]
    return "\n".join(str(p["text"]) if "text" in p else f"[{p.get('type', 'part')}]" for p in parts)
