"""What rows carry of a run's skills (platform.md B8)."""

from __future__ import annotations

import hashlib
import io
import json
from pathlib import Path

import pytest

from environments.registry import Registry
from rollstream.runfiles.expansion import Plan
from rollstream.runfiles.materialize import materialize
from rollstream.runfiles.problems import PlanError
from rollstream.runfiles.skills import skills_ref

FRONT = "---\nname: {name}\ndescription: Sums, é\nmetadata:\n  version: 1.10\n---\n# How\n"


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    skills = tmp_path / "skills"
    for name in ("b-sums", "a-words"):
        (skills / name / "scripts").mkdir(parents=True)
        (skills / name / "SKILL.md").write_text(FRONT.format(name=name), "utf-8")
    (skills / "b-sums" / "scripts" / "x.py").write_bytes(b"\0\xff")
    return skills


def test_b8_names_versions_and_the_hash_of_all_files(folder: Path) -> None:
    digest = hashlib.sha256()
    for name in ("a-words/SKILL.md", "b-sums/SKILL.md", "b-sums/scripts/x.py"):
        digest.update(name.encode() + b"\0" + (folder / name).read_bytes() + b"\0")
    described = {"description": "Sums, é", "version": "1.10"}
    assert skills_ref(folder, "my/skills") == {
        "path": "my/skills",
        "hash": digest.hexdigest()[:12],
        "skills": [{"name": "a-words", **described}, {"name": "b-sums", **described}],
    }


def test_b8_the_hash_changes_with_a_byte_and_with_a_name(folder: Path) -> None:
    first = skills_ref(folder, "s")["hash"]
    (folder / "b-sums/scripts/x.py").write_bytes(b"\0\xfe")
    second = skills_ref(folder, "s")["hash"]
    (folder / "b-sums/scripts/x.py").rename(folder / "b-sums/scripts/y.py")
    assert len({first, second, skills_ref(folder, "s")["hash"]}) == 3


def test_b8_version_and_description_may_be_missing(folder: Path) -> None:
    (folder / "a-words/SKILL.md").write_text("---\nname: w\n---\n")
    assert skills_ref(folder, "s")["skills"][0] == {"name": "w", "description": None, "version": None}


def test_b8_rows_are_stamped(folder: Path, tmp_path: Path) -> None:
    ref = skills_ref(folder, "s")
    row = {
        "responses_create_params": {"input": "q"},
        "agent_ref": {"name": "mcqa_simple_agent"},
        "skills_ref": {"hash": "of an earlier run"},
    }
    out = tmp_path / "m.jsonl"
    plan = Plan(skills=ref, repeats=2)
    materialize(io.BytesIO(json.dumps(row).encode()), "rows", out, plan, Registry.load())
    assert [json.loads(x)["skills_ref"] for x in out.read_bytes().splitlines()] == [ref, ref]


@pytest.mark.parametrize(
    ("text", "said"),
    [
        (None, "a-words has no SKILL.md"),
        ("# no front matter", "does not begin with front matter"),
        ("---\nname: x\n", "does not begin with front matter"),
        ("---\ndescription: x\n---\n", "its front matter has no name"),
        ("---\n- x\n---\n", "its front matter is not a mapping"),
        ("---\nname: [\n---\n", "its front matter is not YAML"),
        ("---\nname: !!python/object/apply:os.getcwd []\n---\n", "has no name"),
    ],
)
def test_what_is_no_skill(folder: Path, text: str | None, said: str) -> None:
    path = folder / "a-words" / "SKILL.md"
    path.unlink() if text is None else path.write_text(text)
    with pytest.raises(PlanError, match=said.replace("[", r"\[")):
        skills_ref(folder, "s")


def test_a_folder_without_skills(tmp_path: Path) -> None:
    with pytest.raises(PlanError, match="holds no skills"):
        skills_ref(tmp_path, "s")
    with pytest.raises(PlanError, match="is no folder"):
        skills_ref(tmp_path / "nowhere", "s")
