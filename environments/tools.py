"""Typed tools: a method and its annotations are the tool, its JSON schema and its argument check.

Owns how a call becomes the text that the model reads (agents.md, "Tool server replies"). Invariant: wrong names and wrong
arguments become text; only a tool that raises ends the rollout.
"""

from __future__ import annotations

import inspect
import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, TypeVar, get_type_hints

from pydantic import BaseModel, ValidationError, create_model

from schemas import jsontext
from schemas.quick import quick

F = TypeVar("F", bound=Callable[..., Any])

NOT_FOUND = '{"detail":"Not Found"}'

MAX_ERRORS = 100
"""Argument errors told to the model at most. Each repeats a piece of the input, so a megabyte of wrong list elements would
otherwise come back as fifty; nobody acts on the hundredth."""

RESERVED = frozenset({"seed", "respond", "verify", "verify_group", "call_unknown_tool", "close"})
"""Methods of an environment that a policy must never reach, even if someone marks them as tools."""

_MARK = "__rollstream_tool__"
_INJECTED = ("self", "task", "state", "context")


@dataclass(frozen=True, slots=True)
class Text:
    """A tool result handed to the model as it is, not as JSON."""

    text: str


@quick
@dataclass(frozen=True, slots=True)
class ToolReply:
    """What came of one call: the text for the model, and the HTTP status the reference would have answered with."""

    output: str
    status: int = 200


def tool(function: F) -> F:
    """Mark a method of an `Environment` as a tool.

    Parameters called `task`, `state` and `context` are filled in by the worker; the others are the tool's arguments,
    checked by pydantic in its lenient mode (`Annotated[str, Field(alias="state")]` for an argument with one of those
    names). The result is what the model reads: JSON-like or a pydantic model as compact JSON, `Text` and `ToolReply` as
    they are. A tool may change `state` in place; the worker carries it on. It may be `def` or `async def`. A tool without
    arguments ignores whatever it is given.
    """
    setattr(function, _MARK, True)
    return function


@dataclass(frozen=True, slots=True)
class BoundTool:
    """One tool of one environment."""

    name: str
    description: str
    arguments: type[BaseModel]
    function: Callable[..., Any]
    injected: tuple[str, ...]

    def schema(self) -> dict[str, Any]:
        """The function tool of platform.md A2, derived from the signature."""
        parameters = self.arguments.model_json_schema()
        parameters.pop("title", None)
        for prop in parameters.get("properties", {}).values():
            prop.pop("title", None)
        parameters |= {"type": "object", "additionalProperties": False}
        parameters.setdefault("properties", {})
        parameters.setdefault("required", [])
        return {
            "type": "function",
            "name": self.name,
            "description": self.description,
            "parameters": parameters,
            "strict": True,
        }

    def check(self, arguments: Any) -> dict[str, Any]:
        """The arguments by parameter name, converted; raises `pydantic.ValidationError` when they do not fit."""
        fields = self.arguments.model_fields
        if not fields:
            return {}
        # from_attributes gives a body that is no object the text that models have been trained on (FastAPI's).
        checked = self.arguments.model_validate(arguments, from_attributes=True)
        return {name: getattr(checked, name) for name in fields}

    def run(self, values: Mapping[str, Any], given: Mapping[str, Any]) -> Any:
        """Call the tool with checked arguments and what it asks for of `given`; an awaitable when it is `async def`."""
        return self.function(**values, **{name: given[name] for name in self.injected})


def tools_of(owner: object) -> dict[str, BoundTool]:
    """The tools of an environment, by name, in order of definition."""
    found = {}
    for cls in reversed(type(owner).__mro__):
        for name, member in vars(cls).items():
            if getattr(member, _MARK, False):
                if name in RESERVED:
                    raise TypeError(f"{type(owner).__name__}.{name} cannot be a tool: the name belongs to the environment")
                found[name] = _bind(name, getattr(owner, name))
    return found


def with_tools(params: Mapping[str, Any], more: Sequence[Mapping[str, Any]]) -> Mapping[str, Any]:
    """Request parameters that offer the tools `more` besides the row's own; of two with one name, the one in `more`."""
    if not more:
        return params
    names = {t.get("name") for t in more}
    return {**params, "tools": [*(t for t in params.get("tools") or () if t.get("name") not in names), *more]}


def decode_arguments(text: str) -> tuple[Any, ToolReply | None]:
    """The arguments in a call's text, or the reply the model gets when they are not JSON (agents.md, simple_agent 5)."""
    try:
        return json.loads(text), None
    except (ValueError, RecursionError) as e:
        # Blanks after separators, unlike every other reply: the reference's agent writes this one, not its tool server.
        return None, ToolReply(json.dumps({"error": f"Invalid tool call arguments: {e!r}"}), status=400)


def argument_errors(error: ValidationError, arguments: Any) -> ToolReply:
    """The 422 text of arguments that do not fit."""
    if arguments is None:
        detail: list[dict[str, Any]] = [{"type": "missing", "loc": ["body"], "msg": "Field required", "input": None}]
    else:
        detail = [_detail(e) for e in error.errors(include_url=False)[:MAX_ERRORS]]
    return ToolReply(jsontext.dumps({"detail": detail}).decode(), status=422)


def as_text(result: Any) -> str:
    """A tool's result as the model reads it: compact JSON, non-ASCII unescaped; `Text` as it is."""
    if isinstance(result, Text):
        return result.text
    if isinstance(result, BaseModel):
        result = result.model_dump(mode="json")
    return jsontext.dumps(result).decode()


def _detail(error: Mapping[str, Any]) -> dict[str, Any]:
    detail = {"type": error["type"], "loc": ["body", *error["loc"]], "msg": error["msg"], "input": error["input"]}
    if "ctx" in error:
        detail["ctx"] = {k: v if isinstance(v, str | int | float) else str(v) for k, v in error["ctx"].items()}
    return detail


def _bind(name: str, method: Callable[..., Any]) -> BoundTool:
    hints = get_type_hints(method, include_extras=True)
    parameters = inspect.signature(method).parameters.values()
    fields: dict[str, Any] = {
        p.name: (hints.get(p.name, Any), ... if p.default is inspect.Parameter.empty else p.default)
        for p in parameters
        if p.name not in _INJECTED
    }
    arguments = create_model(f"{name}_arguments", **fields)
    injected = tuple(p.name for p in parameters if p.name in _INJECTED)
    return BoundTool(name, inspect.getdoc(method) or "", arguments, method, injected)
