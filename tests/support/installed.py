"""Distributions that look installed: the metadata which `pip install` would leave beside a package."""

from __future__ import annotations

import tomllib
from pathlib import Path


def install(site: Path, name: str, pyproject: str) -> Path:
    """Write the `.dist-info` that a `pyproject.toml` stands for into `site`; its folder."""
    project = tomllib.loads(pyproject)["project"]
    lines = ["Metadata-Version: 2.1", f"Name: {project['name']}", f"Version: {project['version']}"]
    lines += [f"Requires-Dist: {r}" for r in project.get("dependencies", ())]
    for extra, wanted in project.get("optional-dependencies", {}).items():
        lines += [f"Provides-Extra: {extra}", *(f"Requires-Dist: {r}; extra == '{extra}'" for r in wanted)]
    info = site / f"{name}-{project['version']}.dist-info"
    info.mkdir()
    (info / "METADATA").write_text("\n".join(lines) + "\n", "utf-8")
    points = [f"[{group}]\n" + "".join(f"{k} = {v}\n" for k, v in e.items()) for group, e in project["entry-points"].items()]
    (info / "entry_points.txt").write_text("\n".join(points), "utf-8")
    return info
