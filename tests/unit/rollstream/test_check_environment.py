"""`rollstream environment check`: templates and shipped environments pass, and each check finds what it is there for."""

import json
import sys
from pathlib import Path

import pytest
from support.installed import install
from typer.testing import CliRunner

from environments.registry import Registry
from rollstream.checking import scoring
from rollstream.checking.bench import Bench
from rollstream.checking.checks import NAMES, check, unusable
from rollstream.checking.findings import Result
from rollstream.checking.subject import Subject
from rollstream.cli import app
from rollstream.scaffold.files import files_outside
from rollstream.scaffold.kinds import KINDS
from rollstream.scaffold.writing import write
from rollstream.settings import load

ROOT = Path(__file__).parents[3]
SHIPPED = [e.manifest.name for e in Registry.load().entries if e.package.startswith("environments.")]
SHAPES = ("words", "digits", "open brackets", "answer marks")
"""Of the megabytes; every environment's own tests time those that its patterns could stumble over."""


@pytest.fixture(scope="module")
def bench():
    with Bench(load().settings) as made:
        yield made


@pytest.fixture
def site(tmp_path, monkeypatch):
    """Installs a package of a kind, changed; files are named from the package's folder."""
    folder = tmp_path / "site"
    folder.mkdir()
    monkeypatch.syspath_prepend(folder)
    before = set(sys.modules)

    def make(kind, changes=(), *, pyproject=(), name="made_here"):
        files = {str(p): c.decode() for p, c in files_outside(name, kind).items()}
        metadata = files.pop("pyproject.toml")
        for old, new in pyproject:
            assert old in metadata
            metadata = metadata.replace(old, new)
        for file, old, new in changes:
            assert old in files[f"{name}/{file}"], f"{file} has no {old!r}"
            files[f"{name}/{file}"] = files[f"{name}/{file}"].replace(old, new)
        write(folder, {Path(p): c.encode() for p, c in files.items()})
        install(folder, name, metadata)
        return folder / name

    yield make
    for module in set(sys.modules) - before:
        del sys.modules[module]


def findings(bench, name="made_here", shapes=SHAPES):
    registry = Registry.load()
    return check(Subject(registry.entry_of(name), registry, bench, shapes))


def failed(found):
    return {f.check: f.detail for f in found if f.result is Result.FAILED}


@pytest.mark.parametrize("name", SHIPPED)
def test_every_environment_of_this_project_passes(bench, name):
    found = findings(bench, name)
    assert failed(found) == {}
    assert [f.check for f in found] == list(NAMES)


MAY_SKIP = {"extra", "tools", "state"}


@pytest.mark.parametrize("kind", KINDS)
def test_every_template_passes_and_no_check_is_left_out(bench, site, kind):
    site(kind)
    found = findings(bench)
    assert failed(found) == {}
    assert {f.check for f in found if f.result is Result.SKIPPED} <= MAY_SKIP
    assert next(f.detail for f in found if f.check == "fixtures")[0] in "34"


RANDOM = ("environment.py", "return Verdict(float(right),", "return Verdict(float(right), seen=id(response),")
TWICE = ("environment.py", "return Verdict(float(right)", "return Verdict(2.0")
WRONG = {
    "another name": ("score", ("config.yaml", "name: made_here\n", "name: made_there\n"), "manifest", "the folder is 'made_here'"),
    "no description": ("score", ("config.yaml", '"Short answers to questions, given on a line of their own"', '" "'), "manifest", "description"),
    "unknown setting": ("score", ("config.yaml", "simple_agent\n", "simple_agent\n    config: {colour: red}\n"), "variants", "config.colour: unknown key"),
    "unknown agent": ("agent", ("config.yaml", "agent:Revising", "agent:Nobody"), "variants", "Nobody"),
    "does not import": ("score", ("environment.py", "from typing import Any", "import nothing_of_that_name"), "variants", "nothing_of_that_name"),
    "unnamed field": ("score", ("README.md", "`expected_answer`", "the answer"), "README", "does not name expected_answer"),
    "unnamed tool": ("tools", ("README.md", "`distance(start, end)`", "A tool"), "README", "does not name distance"),
    "another title": ("score", ("README.md", "# made_here", "# Something"), "README", "'# made_here'"),
    "tool without docstring": ("state", ("environment.py", '"""Read the list."""', ""), "tools", "tool read has no docstring"),
    "row with a parameter too many": (
        "tools",
        ("data/example.jsonl", '"responses_create_params":{', '"responses_create_params":{"tools":[{"type":"function","name":"distance","parameters":{"properties":{"start":{},"end":{},"by":{}}}}],'),
        "tools",
        "a parameter 'by'",
    ),
    "row without a parameter": (
        "tools",
        ("data/example.jsonl", '"responses_create_params":{', '"responses_create_params":{"tools":[{"type":"function","name":"distance","parameters":{"properties":{"start":{}}}}],'),
        "tools",
        "it needs 'end'",
    ),
    "row that is refused": ("score", ("data/example.jsonl", '"expected_answer":"24"', '"expected_answer":24'), "examples", "example.jsonl:2: row.expected_answer"),
    "row that is no row": ("score", ("data/example.jsonl", '"input":', '"max_tokens":1,"input":'), "examples", "max_tokens: unknown key"),
    "row of another agent": ("score", ("data/example.jsonl", "made_here_simple_agent", "mcqa_simple_agent"), "examples", "belongs to another environment"),
    "reward out of range": ("score", TWICE, "rollouts", "a reward of 2; config.yaml says 0 to 1"),
    "verifier that raises": ("score", ("environment.py", "answer = extract", "answer = 1 / 0 or extract"), "rollouts", "ZeroDivisionError"),
    "another verdict each time": ("score", RANDOM, "determinism", "scored twice"),
    "state that does not come back": (
        "state",
        ("environment.py", '"""The list as it stands."""', '"""The list as it stands."""\n\n    def model_dump_json(self, **kw):\n        self.entries["dumps"] = self.entries.get("dumps", 0) + 1\n        return super().model_dump_json(**kw)'),
        "state",
        "another one after JSON",
    ),
    "fixture of another reward": ("score", ("data/fixtures.jsonl", "Answer: Rhine", "Answer: Danube"), "fixtures", "'another answer': rewards [1.0], expected [0.0]"),
    "full reward that is not full": ("score", ("config.yaml", "range: [0.0, 1.0]", "range: [0.0, 5.0]"), "fixtures", "no full reward (5) among [1.0]"),
    "zero reward that is not zero": ("score", ("config.yaml", "range: [0.0, 1.0]", "range: [-1.0, 1.0]"), "fixtures", "are not zero (-1)"),
    "malformed that is taken": ("score", ("environment.py", "expected_answer: str", 'expected_answer: str = ""'), "fixtures", "it was not refused"),
    "malformed for another reason": ("score", ("data/fixtures.jsonl", "expected_answer: missing", "no such text"), "fixtures", "expected 'no such text'"),
    "tool that says something else": ("state", ("data/fixtures.jsonl", '"Struck off."', '"Gone."'), "fixtures", "said 'Struck off.', expected 'Gone.'"),
    "seeded without a case": ("score", ("data/fixtures.jsonl", '"determinism"', '"full_reward"'), "fixtures", "needs a case of kind determinism"),
    "unknown key in a fixture": ("score", ("data/fixtures.jsonl", '"kind"', '"sort"'), "fixtures", "fixtures.jsonl:1: fixture.kind: missing"),
}  # fmt: skip


@pytest.mark.parametrize("what", WRONG)
def test_each_check_finds_what_it_is_there_for(bench, site, what):
    kind, change, name, said = WRONG[what]
    site(kind, [change])
    found = failed(findings(bench, "made_there" if what == "another name" else "made_here", shapes=SHAPES[:1]))
    assert said in found.get(name, f"nothing found by {name}: {found}")


def test_files_that_are_not_there_are_found(bench, site):
    folder = site("score")
    (folder / "README.md").unlink()
    (folder / "data" / "example.jsonl").unlink()
    found = failed(findings(bench))
    assert found["README"] == "there is no README.md"
    assert found["examples"] == "there is no data/example.jsonl"


def test_too_few_examples_are_found(bench, site):
    path = site("score") / "data" / "example.jsonl"
    path.write_text("".join(path.read_text().splitlines(keepends=True)[:4]))
    assert "has 4 tasks; 5 are the least" in failed(findings(bench))["examples"]


def test_a_verifier_that_is_slow_with_a_megabyte_is_found(bench, site, monkeypatch):
    slow = ("environment.py", "answer = extract", "sum(1 for _ in response.flat_text())\n        answer = extract")
    site("score", [slow])
    monkeypatch.setattr(scoring, "MEGABYTE_S", 1e-3)
    assert "a megabyte of" in failed(findings(bench, shapes=["digits"]))["time"]


def test_a_missing_package_is_said_with_the_command_and_the_rest_is_skipped(bench, site):
    site(
        "score",
        [("config.yaml", "license:", "extra: rare\nlicense:")],
        pyproject=[("test = [", 'rare = ["no-such-package>=3"]\ntest = [')],
    )
    found = findings(bench)
    assert failed(found)["extra"] == "it needs no-such-package>=3, not installed here: pip install 'made_here[rare]'"
    assert all(f.result is Result.SKIPPED for f in found if f.check in NAMES[3:])


def test_an_extra_that_the_package_does_not_have_is_found(bench, site):
    site("score", [("config.yaml", "license:", "extra: rare\nlicense:")])
    assert "the installed made_here has no extra 'rare'" in failed(findings(bench))["extra"]


def test_what_an_environment_needs_and_is_not_there_is_skipped_and_not_passed(bench):
    found = {f.check: f for f in findings(bench, "math_formal_lean")}
    assert found["rollouts"].result is Result.SKIPPED
    assert "no code server" in found["rollouts"].detail


def test_something_registered_that_cannot_be_read_is_a_finding(site):
    site("score", [("config.yaml", "variants:", "colour: red\nvariants:")])
    broken = Registry.load().broken
    found = unusable(broken[0])
    assert failed(found) == {"manifest": "config.yaml.colour: unknown key"}
    assert [f.check for f in found] == list(NAMES)


def cli(*words):
    return CliRunner().invoke(app, ["environment", "check", *words])


def test_the_command_prints_a_table_and_json(site):
    site("row-tools", [("data/fixtures.jsonl", '"expected_reward": 0.0', '"expected_reward": 0.5')])
    done = cli("mcqa", "made_here")
    assert done.exit_code == 3
    assert "failed" in done.stdout
    assert "expected [0.5]" in " ".join(done.stdout.replace("│", " ").split())
    done = cli("mcqa", "--json")
    assert done.exit_code == 0
    [report] = json.loads(done.stdout)
    assert report["environment"] == "mcqa"
    assert not report["failed"]
    assert [c["check"] for c in report["checks"]] == list(NAMES)


def test_the_command_writes_the_rewards_of_now_when_asked(site):
    folder = site("row-tools", [("data/fixtures.jsonl", '"expected_reward": 1.0', '"expected_reward": 0.25')])
    done = cli("made_here", "--update-expected")
    assert done.exit_code == 0, done.output
    assert "2 of the fixtures have changed" in done.stderr
    rewards = [
        json.loads(line).get("expected_reward") for line in (folder / "data" / "fixtures.jsonl").read_text().splitlines()
    ]
    assert rewards == [1.0, 0.0, None, 1.0]
    assert sorted(p.name for p in (folder / "data").iterdir()) == ["example.jsonl", "fixtures.jsonl"]


@pytest.mark.parametrize(
    ("words", "said"),
    [
        ((), "name an environment, or give --all"),
        (("mcqua",), "did you mean 'mcqa'"),
        (("xstest_wildguard",), "a variant of xstest"),
        (("mcqa", "--update-expected"), "has nothing to update"),
    ],
)
def test_what_cannot_be_checked_is_said(words, said):
    done = cli(*words)
    assert done.exit_code == 2
    assert said in done.stderr
