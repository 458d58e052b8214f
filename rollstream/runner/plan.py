"""What a `run` is asked to do, and the rows it starts from."""

from __future__ import annotations

import io
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from itertools import compress, islice
from pathlib import Path
from typing import Any, BinaryIO

from environments.discovery import Entry
from environments.registry import Registry
from rollstream.runfiles.expansion import AGENT_TYPE, Plan
from rollstream.runfiles.prompt_config import PromptConfig
from rollstream.runfiles.repeats import Repeats
from rollstream.runfiles.search import SearchRoots
from rollstream.runfiles.skills import skills_ref
from schemas import jsontext
from schemas.errors import DataError
from schemas.rows import AGENT_REF, agent_name


@dataclass(frozen=True, slots=True)
class RunRequest:
    """One `rollstream run`: where rows come from, where lines go, what becomes of each row.

    `limit` counts rows of each source before repetition; 0 takes all. `resume` goes on with the run in `output`, with
    `allow_changes` even under another configuration. Paths of prompt config and skills are looked for in `search_folders`
    and the usual places (platform.md E2). `aggregate` says whether metrics are computed at the end.
    """

    output: Path
    environments: tuple[str, ...] = ()
    input: Path | None = None
    repeats: Repeats = None
    limit: int = 0
    resume: bool = False
    strict: bool = False
    agent: str | None = None
    overrides: Mapping[str, Any] = field(default_factory=dict)
    add_seed: bool = False
    prompt_config: Path | None = None
    skills: Path | None = None
    search_folders: tuple[Path, ...] = ()
    allow_changes: bool = False
    aggregate: bool = True

    @property
    def has_source(self) -> bool:
        """Whether it is said what to run."""
        return bool(self.environments) or self.input is not None

    def find(self, name: Path) -> Path:
        """The file or folder `name` where it is first found, else where it would be here."""
        try:
            return SearchRoots.of(self.search_folders).find(name).path
        except FileNotFoundError:
            return name


@dataclass(frozen=True, slots=True)
class PlanOfRows:
    """What a request does to its rows, files read, and what to say about those files."""

    plan: Plan
    warnings: tuple[str, ...]


def plan_of(request: RunRequest) -> PlanOfRows:
    """Read what the request names; raises `PlanError`, and `OSError` for files that cannot be read."""
    roots, warnings = SearchRoots.of(request.search_folders), []
    prompt = skills = None
    if request.prompt_config is not None:
        found = roots.find(request.prompt_config)
        warnings.append(found.warning())
        prompt = PromptConfig.read(found.path)
    if request.skills is not None:
        found = roots.find(request.skills)
        warnings.append(found.warning())
        skills = skills_ref(found.path, str(request.skills))
    plan = Plan(
        environment=request.environments[0] if len(request.environments) == 1 and request.input else None,
        agent=request.agent,
        overrides=request.overrides,
        repeats=request.repeats,
        add_seed=request.add_seed,
        prompt=prompt,
        skills=skills,
    )
    return PlanOfRows(plan, tuple(w for w in warnings if w))


@contextmanager
def open_rows(request: RunRequest, registry: Registry) -> Iterator[tuple[BinaryIO, str, int]]:
    """The rows as (file, its name in messages, rows to take).

    Raises `DataError` for an unknown environment, `OSError` for a file that cannot be read.
    """
    if request.input is not None:
        with SearchRoots.of(request.search_folders).find(request.input).path.open("rb") as file:
            yield file, str(request.input), request.limit
    else:
        lines = [line for name in request.environments for line in _examples(registry, name, request.limit)]
        yield io.BytesIO(b"".join(lines)), ", ".join(request.environments), 0


def _examples(registry: Registry, name: str, limit: int) -> list[bytes]:
    entry = registry.entry_of(name)
    path = entry.folder / "data" / "example.jsonl"
    if not path.is_file():
        raise DataError(f"environment {name} ships no example tasks ({path}); give it rows with --input")
    with path.open("rb") as file:
        found = [line.rstrip(b"\n") for line in file if line.strip()]
    return [line + b"\n" for line in islice(_of_variant(entry, name, found), limit or None)]


def _of_variant(entry: Entry, name: str, lines: list[bytes]) -> Iterator[bytes]:
    """Example rows as the variant `name` runs them; an environment's own name means its rows as they stand.

    Rows name the agent of one variant: where some name this one's they are its tasks, else all are, under its agent.
    """
    variants = entry.manifest.variants
    variant = variants.get(name)
    if variant is None:
        return iter(lines)
    rows = [jsontext.loads(line) for line in lines]
    known = {v.agent.name for v in variants.values()} if name == entry.manifest.name else {variant.agent.name}
    mine = [agent_name(row) in known for row in rows]
    if any(mine):
        return compress(lines, mine)
    ref = {"type": AGENT_TYPE, "name": variant.agent.name}
    return (jsontext.dumps({**row, AGENT_REF: ref}) for row in rows)
