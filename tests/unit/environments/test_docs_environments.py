"""docs/environments.md: the package it builds works, and its tests pass."""

from __future__ import annotations

import os
import re
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[3]
BLOCK = re.compile(r"^```\w+ (\S+)\n(.*?)^```$", re.MULTILINE | re.DOTALL)


@pytest.fixture
def site(tmp_path: Path) -> Path:
    """The files of the page, written where it says, with the metadata that installing them would leave."""
    for name, text in BLOCK.findall((ROOT / "docs" / "environments.md").read_text("utf-8")):
        path = tmp_path / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text, "utf-8")
    project = tomllib.loads((tmp_path / "pyproject.toml").read_text("utf-8"))["project"]
    info = tmp_path / "cheapest-0.1.0.dist-info"
    info.mkdir()
    (info / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {project['name']}\nVersion: {project['version']}\n", "utf-8")
    points = [f"[{group}]\n" + "".join(f"{k} = {v}\n" for k, v in e.items()) for group, e in project["entry-points"].items()]
    (info / "entry_points.txt").write_text("\n".join(points), "utf-8")
    return tmp_path


def test_the_pages_own_tests_pass(site: Path) -> None:
    command = [
        sys.executable,
        "-m",
        "pytest",
        "-q",
        "-p",
        "no:cacheprovider",
        "--rootdir",
        str(site),
        "-c",
        os.devnull,
        "tests",
    ]
    path = os.pathsep.join([str(site), str(ROOT)])
    run = subprocess.run(
        command, cwd=site, env={**os.environ, "PYTHONPATH": path}, capture_output=True, text=True, timeout=50, check=False
    )
    assert run.returncode == 0, run.stdout + run.stderr
    assert "10 passed" in run.stdout


def test_every_path_the_page_names_exists() -> None:
    text = (ROOT / "docs" / "environments.md").read_text("utf-8")
    named = set(re.findall(r"`((?:environments|tests)/[\w/]+\.py)`", text))
    assert named
    assert all((ROOT / name).exists() for name in named)
