"""The tools `run_experiment_<module>`, made from the modules' tables.

Invariant: an optional argument that is missing counts as null, and null never becomes a default (newton_bench.md, "Tools").
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

from pydantic import create_model

from environments.environment import Context
from environments.newton_bench.experiments import perform
from environments.newton_bench.modules import MODULES, Module
from environments.newton_bench.noise import Noise
from environments.tools import BoundTool, ToolReply

PREFIX = "run_experiment_"
_COUNTS = frozenset({"num_points"})


def experiment_tools() -> dict[str, BoundTool]:
    """One tool for each module, by name."""
    return {f"{PREFIX}{name}": _tool(name, module) for name, module in MODULES.items()}


def schema(module: str) -> dict[str, Any]:
    """The tool as rows offer it: every parameter required, optional ones nullable."""
    arguments = MODULES[module].arguments
    return {
        "type": "function",
        "name": f"{PREFIX}{module}",
        "description": f"Run one experiment of {module} and read the instruments.",
        "parameters": {
            "type": "object",
            "properties": {name: {"type": _json_type(name, must)} for name, must in arguments.items()},
            "required": list(arguments),
            "additionalProperties": False,
        },
        "strict": True,
    }


def _json_type(name: str, must: bool) -> Any:
    plain = "integer" if name in _COUNTS else "number"
    return plain if must else [plain, "null"]


def _tool(name: str, module: Module) -> BoundTool:
    fields: dict[str, Any] = {
        argument: (_type(argument), ...) if must else (_type(argument) | None, None)
        for argument, must in module.arguments.items()
    }

    def run(task: Any, context: Context, **given: Any) -> ToolReply:
        return _run(name, task, given, context)

    model = create_model(f"{PREFIX}{name}_arguments", **fields)
    return BoundTool(f"{PREFIX}{name}", f"Run one experiment of {name}.", model, run, ("task", "context"))


def _type(argument: str) -> Any:
    return int if argument in _COUNTS else float


def _run(name: str, task: Any, given: Mapping[str, Any], context: Context) -> ToolReply:
    if name != task.module_name:
        told = f"Session configured for '{task.module_name}', but received run_experiment call for '{name}'."
        return ToolReply(_json({"detail": told}), status=400)
    noise = Noise(task.noise_level, context.rng)
    return ToolReply(_json({"result": perform(name, task.difficulty, task.law_version, task.system, given, noise)}))


def _json(value: Any) -> str:
    """Python's spelling of numbers (5.0055e-05), in which models have seen these results."""
    return json.dumps(value, separators=(",", ":"), ensure_ascii=False)
