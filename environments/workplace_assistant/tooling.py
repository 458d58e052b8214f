"""Tools with the reference's manners: everything that goes wrong inside one becomes a line that the model reads.

Owns how a tool's name leads to a method and how its schema follows from the signature. Invariant: only methods marked with
`offered` can be reached by a name that a model writes.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Annotated, Any, ClassVar, TypeVar, get_args, get_type_hints

from environments.workplace_assistant.databases import Databases

F = TypeVar("F", bound=Callable[..., Any])

_OFFERED = "__workplace_tool__"


@dataclass(frozen=True, slots=True)
class Argument:
    """What a schema says of an argument; the value itself is whatever the model wrote."""

    description: str
    type: str = "string"
    required: bool = False


def offered(*, changes: bool = False) -> Callable[[F], F]:
    """Mark a method of a toolkit as a tool; `changes`: it may change a table that is scored."""

    def marked(function: F) -> F:
        setattr(function, _OFFERED, changes)
        return function

    return marked


class Toolkit:
    """Tools over one rollout's databases; `now` is a Unix time."""

    prefix: ClassVar[str]

    def __init__(self, databases: Databases, now: float) -> None:
        self.databases = databases
        self.now = now


@dataclass(frozen=True, slots=True)
class Tool:
    """A method of a toolkit under the name that models use."""

    name: str
    toolkit: type[Toolkit]
    method: str
    changes: bool

    def run(self, databases: Databases, arguments: Mapping[str, Any], now: float) -> Any:
        """The result; raises whatever is wrong with the arguments."""
        return getattr(self.toolkit(databases, now), self.method)(**arguments)

    def schema(self) -> dict[str, Any]:
        """The function tool (platform.md A2)."""
        method = getattr(self.toolkit, self.method)
        arguments = {
            name: get_args(hint)[1] for name, hint in get_type_hints(method, include_extras=True).items() if name != "return"
        }
        return {
            "type": "function",
            "name": self.name,
            "description": " ".join((inspect.getdoc(method) or "").split()),
            "parameters": {
                "type": "object",
                "properties": {name: {"type": a.type, "description": a.description} for name, a in arguments.items()},
                "required": [name for name, a in arguments.items() if a.required],
                "additionalProperties": False,
            },
            "strict": False,
        }


def tools_of(*toolkits: type[Toolkit]) -> dict[str, Tool]:
    """The tools of these toolkits by name, in order of definition."""
    found = [
        Tool(toolkit.prefix + name, toolkit, name, getattr(method, _OFFERED))
        for toolkit in toolkits
        for name, method in vars(toolkit).items()
        if hasattr(method, _OFFERED)
    ]
    return {tool.name: tool for tool in found}


Page = Annotated[Any, Argument("Page of the results, from 1", "integer")]
PageSize = Annotated[Any, Argument("Results on a page", "integer")]
