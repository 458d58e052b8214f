"""Rows made by the library: `python -m environments.reasoning_gym.rows --task countdown --size 100`.

Invariant: the same arguments give the same rows. The library iterates over sets of text, whose order differs from process to
process, so the command starts itself again with a fixed hash seed.
"""

from __future__ import annotations

import argparse
import importlib
import json
import os
import sys
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import redirect_stdout
from typing import Any

from environments.common.extras import require
from environments.reasoning_gym.scorer import load, modules

COMPOSITE = "composite"
"""The library's set of sets; it is no task of its own."""

AGENT = "reasoning_gym_simple_agent"


def categories() -> dict[str, list[str]]:
    """Every task of the library by its category (the sub-package that it lies in)."""
    found: dict[str, list[str]] = {}
    for name, module in _tasks().items():
        if name != COMPOSITE:
            found.setdefault(module.partition(".")[0], []).append(name)
    return {category: sorted(found[category]) for category in sorted(found)}


def rows(names: Sequence[str], size: int, seed: int, config: Mapping[str, Any], agent: str = AGENT) -> Iterator[dict[str, Any]]:
    """`size` rows of a task, or of several with equal weights. `config` is the task's own, by its name where there are several.

    Raises `ValueError` for a task that the library has not, or settings that it refuses. An entry that cannot be generated
    is left out, with a line on stderr.
    """
    unknown = sorted(set(names) - set(_tasks()) | {COMPOSITE} & set(names))
    if unknown or not names:
        raise ValueError(f"the library has no task {', '.join(unknown) or 'without a name'} (--list shows them)")
    try:
        dataset = _dataset(names, size, seed, config)
    except (AssertionError, TypeError) as e:
        raise ValueError(f"the library refuses these settings: {e}") from e
    for index in range(size):
        try:
            with redirect_stdout(sys.stderr):  # the library prints what it could not run; rows go to stdout
                entry = dataset[index]
        except Exception as e:  # noqa: BLE001 - the library's own, of any kind
            sys.stderr.write(f"entry {index} was not generated: {e!r}\n")
            continue
        yield _row(entry, agent)


def _dataset(names: Sequence[str], size: int, seed: int, config: Mapping[str, Any]) -> Any:
    for name in names:
        load(name)
    factory: Any = importlib.import_module("reasoning_gym.factory")
    if len(names) == 1:
        return factory.create_dataset(names[0], **{**config, "size": size, "seed": seed})
    composite: Any = load(COMPOSITE)
    specs = [composite.DatasetSpec(name=n, weight=1.0, config=dict(config.get(n, {}))) for n in names]
    return factory.create_dataset(COMPOSITE, datasets=specs, size=size, seed=seed)


def _row(entry: Mapping[str, Any], agent: str) -> dict[str, Any]:
    return {
        "responses_create_params": {"input": [{"role": "user", "content": entry["question"]}]},
        "question": entry["question"],
        "answer": entry["answer"],
        "metadata": entry["metadata"],
        "agent_ref": {"type": "responses_api_agents", "name": agent},
    }


def _tasks() -> dict[str, str]:
    require("reasoning_gym", "reasoning_gym")
    return modules()


def _plain(value: Any) -> Any:
    """JSON's stand-in for what it does not have: numbers of NumPy, sets, dates."""
    if hasattr(value, "tolist"):
        return value.tolist()
    return sorted(value) if isinstance(value, set | frozenset) else str(value)


def _names(asked: argparse.Namespace) -> list[str]:
    if asked.task:
        return str(asked.task).split(",")
    known = categories()
    if asked.all:
        return [n for names in known.values() for n in names]
    if asked.category not in known:
        raise ValueError(f"there is no category {asked.category!r} (there are: {', '.join(known)})")
    return known[asked.category]


def _write(lines: Iterable[Mapping[str, Any]]) -> None:
    for line in lines:
        sys.stdout.write(json.dumps(line, ensure_ascii=False, default=_plain) + "\n")


def _parser() -> argparse.ArgumentParser:
    p = argparse.ArgumentParser(prog="python -m environments.reasoning_gym.rows", description="Rows, one a line, to stdout.")
    which = p.add_mutually_exclusive_group(required=True)
    which.add_argument("--task", help="one task, or several separated by commas")
    which.add_argument("--category", help="all tasks of a category")
    which.add_argument("--all", action="store_true", help="all tasks")
    which.add_argument("--list", action="store_true", help="show categories and tasks")
    p.add_argument("--size", type=int, default=500, help="rows in all")
    p.add_argument("--seed", type=int, default=42)
    p.add_argument("--config", type=json.loads, default={}, help="JSON: settings of the task, or of each task by its name")
    p.add_argument("--agent", default=AGENT, help="the agent that rows name")
    return p


def main(argv: Sequence[str] | None = None) -> int:
    """Write rows; 2 for arguments that do not fit."""
    asked = _parser().parse_args(argv)
    try:
        if asked.list:
            _write({"category": c, "tasks": names} for c, names in categories().items())
        else:
            _write(rows(_names(asked), asked.size, asked.seed, asked.config, asked.agent))
    except ValueError as e:
        sys.stderr.write(f"{e}\n")
        return 2
    return 0


if __name__ == "__main__":
    if os.environ.get("PYTHONHASHSEED") != "0":
        os.execve(  # noqa: S606 - the same program again; nothing of it comes from outside
            sys.executable,
            [sys.executable, "-m", "environments.reasoning_gym.rows", *sys.argv[1:]],
            {**os.environ, "PYTHONHASHSEED": "0"},
        )
    raise SystemExit(main())
