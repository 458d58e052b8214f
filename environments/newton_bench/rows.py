"""Rows of newton_bench, made from its tables: `python -m environments.newton_bench.rows > rows.jsonl`.

Invariant: a row is complete (prompt, tools, hidden law's name) and tells nothing of the law's form.
"""

from __future__ import annotations

import argparse
import itertools
import json
import sys
from collections.abc import Iterator, Mapping, Sequence
from functools import cache
from pathlib import Path
from typing import Any

import yaml

from environments.common.template import Template
from environments.newton_bench.laws import LAWS, VERSIONS
from environments.newton_bench.modules import MODULES, SYSTEMS
from environments.newton_bench.submission import FUNCTION
from environments.newton_bench.tools import PREFIX, schema

AGENT = "newton_bench_simple_agent"

_HERE = Path(__file__).parent
_PROMPT = Template.load("prompts/task.txt", base=_HERE)

_PYTHON: dict[str, Any] = {
    "type": "function",
    "name": "execute_python",
    "description": "Run Python code. Variables are kept from call to call; numpy, scipy, pandas and math are at hand.",
    "parameters": {
        "type": "object",
        "properties": {"code": {"type": "string", "description": "The code to run."}},
        "required": ["code"],
        "additionalProperties": False,
    },
    "strict": True,
}


def row(module: str, difficulty: str, system: str, version: str, *, noise: float = 0.0, code: bool = False) -> dict[str, Any]:
    """One row; `code` also offers the Python tool."""
    return {
        "responses_create_params": {
            "input": [
                {"role": "system", "content": prompt(module, system, noise=noise, code=code)},
                {"role": "user", "content": f"Begin the discovery for {module}."},
            ],
            "tools": [schema(module), *([_PYTHON] if code else [])],
            "parallel_tool_calls": True,
        },
        "module_name": module,
        "difficulty": difficulty,
        "system": system,
        "noise_level": noise,
        "law_version": version,
        "agent_ref": {"type": "responses_api_agents", "name": AGENT},
    }


def prompt(module: str, system: str, *, noise: float, code: bool) -> str:
    """What the policy is told."""
    about = MODULES[module]
    return _PROMPT.fill(
        {
            "quantity": about.quantity,
            "parameters": "\n".join(f"- {name}: {meaning}" for name, meaning in about.parameters.items()),
            "apparatus": _apparatus()[module][system],
            "readings": f"Readings scatter by {noise:g} of their value." if noise else "Readings are exact.",
            "tool": f"{PREFIX}{module}",
            "python": " Compute with execute_python as you like; it keeps your variables." if code else "",
            "signature": f"def {FUNCTION}({', '.join(about.parameters)}):",
        }
    )


@cache
def _apparatus() -> Mapping[str, Mapping[str, str]]:
    """What is told of each apparatus, by module and system."""
    found: Mapping[str, Mapping[str, str]] = yaml.safe_load((_HERE / "apparatus.yaml").read_text("utf-8"))
    return found


def rows(*, noise: float, code: bool, systems: Sequence[str] = SYSTEMS) -> Iterator[dict[str, Any]]:
    """A row for every law and system."""
    for module, system in itertools.product(MODULES, systems):
        for difficulty, version in itertools.product(LAWS[module], VERSIONS):
            yield row(module, difficulty, system, version, noise=noise, code=code)


def main() -> None:
    """Write all rows to stdout."""
    parser = argparse.ArgumentParser(description=rows.__doc__)
    parser.add_argument("--noise", type=float, default=0.0, help="relative standard deviation of readings")
    parser.add_argument("--code", action="store_true", help="offer the Python tool")
    parser.add_argument("--system", action="append", choices=SYSTEMS, help="only this system (may be repeated)")
    given = parser.parse_args()
    for made in rows(noise=given.noise, code=given.code, systems=given.system or SYSTEMS):
        sys.stdout.write(json.dumps(made) + "\n")


if __name__ == "__main__":
    main()
