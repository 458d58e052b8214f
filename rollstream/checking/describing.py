"""Checks of what an environment says about itself: manifest, README, tools."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

from environments.environment import Task
from environments.extras import Extras, install_command
from environments.tools import BoundTool
from rollstream.checking.findings import Problem, Skip
from rollstream.checking.subject import Subject

_TOOL_NAME = re.compile(r"[A-Za-z0-9_-]{1,64}")
_WORD = re.compile(r"[A-Za-z0-9_]+")
_FAMILY = re.compile(r"([A-Za-z0-9_]{3,}_)[<*]")
"""The beginning of names that a README gives together, as `move_<direction>` or `move_*`."""


def check_manifest(subject: Subject, said: list[str]) -> None:
    """Complete, and named as its folder."""
    manifest, folder = subject.entry.manifest, subject.entry.folder
    if manifest.name != folder.name:
        raise Problem(f"config.yaml: name is {manifest.name!r}, the folder is {folder.name!r}")
    empty = [key for key in ("description", "domain", "license") if not getattr(manifest, key).strip()]
    if empty:
        raise Problem(f"config.yaml: {', '.join(empty)} must not be empty")
    if not manifest.variants:
        raise Problem("config.yaml: there are no variants")
    said.append(f"{len(manifest.variants)} variant{'s' * (len(manifest.variants) > 1)}, {manifest.domain}, {manifest.license}")


def check_extra(subject: Subject, said: list[str]) -> None:
    """Everything that the extra asks for is installed."""
    extra, distribution = subject.entry.manifest.extra, subject.entry.distribution
    if extra is None:
        raise Skip("no extra: nothing is needed beyond rollstream")
    extras = Extras()
    wanted = extras.requirements(distribution, extra)
    if wanted is None:
        raise Problem(
            f"config.yaml: the installed {distribution} has no extra {extra!r}; it belongs into pyproject.toml "
            f"(after a change: {install_command(distribution, extra)})"
        )
    lack = extras.lacking(distribution, extra)
    if lack:
        raise Problem(lack)
    said.append(f"{distribution}[{extra}]: {', '.join(r.name for r in wanted)}")


def check_variants(subject: Subject, said: list[str]) -> None:
    """The class and the agent of every variant can be made from its configuration."""
    said.append(", ".join(sorted({type(b.agent).__name__ for b in subject.bindings})))


def check_readme(subject: Subject, said: list[str]) -> None:
    """It is there, is titled as the environment, and names the fields of a row and the tools."""
    path = subject.entry.folder / "README.md"
    if not path.is_file():
        raise Problem("there is no README.md")
    text = path.read_text("utf-8")
    if text.partition("\n")[0].strip("# \n") != subject.entry.manifest.name:
        raise Problem(f"README.md: the first line must be the title, '# {subject.entry.manifest.name}'")
    words, families = set(_WORD.findall(text)), tuple(_FAMILY.findall(text))
    names = (*fields_of(subject), *subject.main.environment.tools)
    unnamed = [name for name in names if name not in words and not name.startswith(families)]
    if unnamed:
        raise Problem(f"README.md does not name {', '.join(unnamed)} (fields of a row, or tools)")
    said.append(f"{len(text.split()):,} words")


def fields_of(subject: Subject) -> list[str]:
    """Names of the fields that the environment reads from a row, as rows spell them."""
    task = subject.main.environment.Task
    names = (
        (name, f.validation_alias or f.alias or name) for name, f in task.model_fields.items() if name not in Task.model_fields
    )
    return [alias if isinstance(alias, str) else name for name, alias in names]


def check_tools(subject: Subject, said: list[str]) -> None:
    """Schemas that a model server takes, and rows that offer the tools as they are."""
    tools = subject.main.environment.tools
    if not tools:
        raise Skip("no tools of its own")
    for tool in tools.values():
        _check_schema(tool.schema())
    for number, row in enumerate(subject.rows, 1):
        for offered in row["responses_create_params"].get("tools") or ():
            own = tools.get(offered.get("name"))
            wrong = None if own is None else _mismatch(offered, own)
            if wrong:
                raise Problem(f"data/example.jsonl:{number}: tool {offered['name']}: {wrong}")
    said.append(", ".join(tools) if len(tools) <= 6 else f"{len(tools)} tools")  # noqa: PLR2004 - what fits a line


def _check_schema(schema: Mapping[str, Any]) -> None:
    name, parameters = schema["name"], schema["parameters"]
    if not _TOOL_NAME.fullmatch(name):
        raise Problem(f"tool {name}: model servers take names of letters, digits, - and _ only, at most 64")
    if not schema["description"].strip():
        raise Problem(f"tool {name} has no docstring: it is the description that the model reads")
    unknown = [r for r in _references(parameters) if r.rpartition("/")[2] not in parameters.get("$defs", {})]
    if unknown:
        raise Problem(f"tool {name}: its schema refers to {unknown[0]}, which it does not have")


def _references(schema: Any) -> list[str]:
    if isinstance(schema, Mapping):
        own = [schema["$ref"]] if isinstance(schema.get("$ref"), str) else []
        return own + [r for value in schema.values() for r in _references(value)]
    return [r for value in schema for r in _references(value)] if isinstance(schema, list) else []


def _mismatch(offered: Mapping[str, Any], tool: BoundTool) -> str | None:
    """How the parameters that a row offers differ from those that the tool takes."""
    own, theirs = tool.schema()["parameters"], offered.get("parameters") or {}
    given = set(theirs.get("properties") or {})
    unknown = sorted(given - set(own["properties"])) if own["properties"] else []
    missing = sorted(set(own["required"]) - given)
    if unknown:
        return f"the row offers a parameter {unknown[0]!r}, which it does not take"
    return f"it needs {missing[0]!r}, which the row does not offer" if missing else None
