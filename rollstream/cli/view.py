"""`rollstream view`: stored rollouts as conversations, one after the other."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Annotated, Any

import typer

from rollstream.cli.common import CANNOT, OK, UsageError, add, say

CUT = 2_000
"""Characters of one item that are shown without --whole: a screen of text."""


def register(app: typer.Typer) -> None:
    add(app, view, "Results")


def view(
    file: Annotated[Path, typer.Argument(metavar="FILE.jsonl", help="Results, failures or rows.", show_default=False)],
    task: Annotated[int | None, typer.Option("--task", "-t", min=0, help="Only this task (_ng_task_index).")] = None,
    rollout: Annotated[int | None, typer.Option("--rollout", min=0, help="Only this rollout of a task.")] = None,
    agent: Annotated[str | None, typer.Option("--agent", "-a", metavar="NAME", help="Only rollouts of this agent.")] = None,
    below: Annotated[float | None, typer.Option("--below", metavar="REWARD", help="Only rewards under it.")] = None,
    limit: Annotated[int, typer.Option("--limit", min=0, help="Rollouts shown; 0: all.")] = 10,
    whole: Annotated[bool, typer.Option("--whole", help="Long texts to their end.")] = False,
) -> None:
    """Stored rollouts for reading: request, turns, tool calls and their outputs, reward and the verifier's fields.

    Reads files of `rollstream run` and of the reference, a line at a time. Pipe it into a pager: `| less`.

      rollstream view results/rollouts.jsonl --below 0.5 --limit 3
    """
    shown = matching = 0
    for number, row in _rows(file):
        if not _wanted(row, task, rollout, agent, below):
            continue
        matching += 1
        if limit and shown >= limit:
            continue
        shown += 1
        typer.echo("\n".join(_lines(number, row, None if whole else CUT)) + "\n")
    if not matching:
        say(f"{file}: no rollout matches")
    elif shown < matching:
        say(f"{matching - shown:,} more; --limit 0 shows all")
    raise typer.Exit(OK if matching else CANNOT)


def _rows(file: Path) -> Iterator[tuple[int, dict[str, Any]]]:
    from schemas import jsontext

    if not file.is_file():
        raise UsageError(f"{file}: there is no such file")
    with file.open("rb") as lines:
        for number, line in enumerate(lines, 1):
            if not line.strip():
                continue
            try:
                row = jsontext.loads_lenient(line)
            except ValueError as e:
                say(f"{file}:{number}: not JSON, left out: {e}")
                continue
            if isinstance(row, dict):
                yield number, row
            else:
                say(f"{file}:{number}: not an object, left out")


def _wanted(row: dict[str, Any], task: int | None, rollout: int | None, agent: str | None, below: float | None) -> bool:
    reward = row.get("reward")
    return (
        task in (None, row.get("_ng_task_index"))
        and rollout in (None, row.get("_ng_rollout_index"))
        and agent in (None, _agent(row))
        and (below is None or (isinstance(reward, int | float) and reward < below))
    )


def _agent(row: dict[str, Any]) -> str | None:
    ref = row.get("agent_ref")
    name = ref.get("name") if isinstance(ref, dict) else None
    return name if isinstance(name, str) else None


_BODY = frozenset({"responses_create_params", "response", "agent_ref", "_ng_task_index", "_ng_rollout_index", "reward"})


def _lines(number: int, row: dict[str, Any], cut: int | None) -> Iterator[str]:
    place = f"task {row.get('_ng_task_index', '–')}, rollout {row.get('_ng_rollout_index', '–')}"
    yield _plain(f"── line {number}: {place}, agent {_agent(row) or '–'}, reward {row.get('reward', '–')}")
    params, response = row.get("responses_create_params"), row.get("response")
    given = params.get("input") if isinstance(params, dict) else None
    for item in [{"role": "user", "content": given}] if isinstance(given, str) else _items(given):
        yield from _item(item, cut)
    for item in _items(response.get("output") if isinstance(response, dict) else None):
        yield from _item(item, cut)
    for key, value in row.items():
        if key not in _BODY:
            yield from _text(f"· {key}", value, cut)


def _items(value: Any) -> list[dict[str, Any]]:
    return [item for item in value if isinstance(item, dict)] if isinstance(value, list) else []


def _item(item: dict[str, Any], cut: int | None) -> Iterator[str]:
    kind = item.get("type") or "message"
    if kind == "function_call":
        yield from _text(f"call {item.get('name')}", item.get("arguments"), cut)
    elif kind == "function_call_output":
        yield from _text("output", item.get("output"), cut)
    elif kind == "reasoning":
        yield from _text("reasoning", _joined([*_items(item.get("summary")), *_items(item.get("content"))]), cut)
    elif kind == "message":
        content = item.get("content")
        yield from _text(str(item.get("role")), content if isinstance(content, str) else _joined(_items(content)), cut)
    else:
        yield from _text(str(kind), item, cut)


def _joined(parts: list[dict[str, Any]]) -> str:
    return "\n".join(str(p.get("text") or p.get("refusal") or f"[{p.get('type')}]") for p in parts)


def _text(label: str, value: Any, cut: int | None) -> Iterator[str]:
    from schemas import jsontext

    text = value if isinstance(value, str) else jsontext.dumps(value).decode("utf-8", "replace")
    if cut is not None and len(text) > cut:
        text = f"{text[:cut]} … ({len(text) - cut:,} more characters; --whole)"
    first, *more = text.splitlines() or [""]
    yield _plain(f"{label}: {first}")
    yield from (_plain(f"    {line}") for line in more)


def _plain(line: str) -> str:
    from rollstream.text import printable

    return printable(line)
