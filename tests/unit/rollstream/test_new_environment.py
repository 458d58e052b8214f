"""`rollstream environment new`: every kind is formatted, typed, tested and found, inside the project and as a package."""

import os
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest
import yaml
from hypothesis import given
from hypothesis import strategies as st
from support.installed import install
from typer.testing import CliRunner

import environments
from environments.agents.playing import play
from environments.discovery import discover
from environments.registry import Registry
from environments.testing import EnvironmentHarness
from rollstream.cli import app
from rollstream.scaffold.files import MAX_NAME, checked_name, files_inside, files_outside
from rollstream.scaffold.kinds import KINDS, TEMPLATES, template_folder
from rollstream.scaffold.writing import write
from schemas.rows import parse_row

ROOT = Path(__file__).parents[3]
LONGEST = "n" * (MAX_NAME - 12)
NAMES = {kind: f"{kind.replace('-', '_')}_new" for kind in KINDS}


def tool(*command, cwd, timeout=55, **env):
    return subprocess.run(
        [sys.executable, "-m", *command],
        cwd=cwd,
        env={**os.environ, "PYTHONPATH": os.pathsep.join([str(cwd), str(ROOT)]), **env},
        capture_output=True,
        text=True,
        timeout=timeout,
        check=False,
    )


@pytest.fixture(scope="module")
def site(tmp_path_factory):
    """A directory with a package of each kind, as installing them would leave it, and their tests."""
    folder = tmp_path_factory.mktemp("site")
    for kind, name in NAMES.items():
        write(folder, {p: c for p, c in files_outside(name, kind).items() if p.name != "pyproject.toml"})
        install(folder, name, files_outside(name, kind)[Path("pyproject.toml")].decode())
    return folder


def test_there_is_a_template_for_every_kind():
    assert {p for p in TEMPLATES.iterdir() if p.is_dir() and p.name != "__pycache__"} == {template_folder(k) for k in KINDS}


def test_the_tests_of_every_kind_pass(site):
    found = tool("pytest", "-q", "-p", "no:cacheprovider", "--import-mode=importlib", "-c", os.devnull, "tests", cwd=site)
    assert found.returncode == 0, found.stdout + found.stderr


@pytest.mark.parametrize("name", ["ab", LONGEST])
def test_every_kind_is_formatted_and_linted_whatever_its_name(tmp_path, name):
    for kind in KINDS:
        write(tmp_path, files_inside(f"{name}_{kind.replace('-', '_')}", kind))
    # In the checkout these are found by themselves; sorting imports depends on which are first-party.
    ours = 'lint.isort.known-first-party=["environments", "services", "schemas", "rollstream"]'
    config = ["--no-cache", "-q", "--config", str(ROOT / "pyproject.toml"), "--config", ours]
    for words in (["check"], ["format", "--check"]):
        found = tool("ruff", *words, *config, ".", cwd=tmp_path)
        assert found.returncode == 0, found.stdout + found.stderr


@pytest.mark.parametrize("kind", KINDS)
def test_a_folder_of_this_project_is_found_and_plays(tmp_path, monkeypatch, kind):
    name = NAMES[kind]
    write(tmp_path, files_inside(name, kind))
    assert (tmp_path / f"tests/unit/environments/test_{name}.py").is_file()
    monkeypatch.setattr(environments, "__path__", [*environments.__path__, str(tmp_path / "environments")])
    try:
        found, broken = discover(tmp_path / "environments")
        assert broken == []
        entry = next(e for e in found if e.manifest.name == name)
        assert entry.package == f"environments.{name}"
        rows = (entry.folder / "data" / "example.jsonl").read_bytes().splitlines()
        assert len(rows) == 5
        binding = Registry([entry]).binding(None, f"{name}_simple_agent")
        harness = EnvironmentHarness(binding)
        for row in rows:
            harness.seed(parse_row(row))
            play(binding.agent, harness, *["I do not know."] * 12)
    finally:
        for module in [m for m in sys.modules if m.startswith(f"environments.{name}")]:
            del sys.modules[module]


def test_every_kind_is_typed_strictly(site):
    packages = [w for name in NAMES.values() for w in ("-p", name)]
    config = ["--config-file", str(ROOT / "pyproject.toml"), "--cache-dir", str(ROOT / ".mypy_cache")]
    found = tool("mypy", *config, "--follow-imports", "silent", *packages, cwd=site, MYPYPATH=f"{site}:{ROOT}")
    assert found.returncode == 0, found.stdout + found.stderr


def test_a_package_names_itself_its_entry_point_and_this_version():
    project = tomllib.loads(files_outside("unit_prices", "tools")[Path("pyproject.toml")].decode())["project"]
    assert project["name"] == "unit_prices"
    assert project["entry-points"] == {"rollstream.environments": {"unit_prices": "unit_prices"}}
    own = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["version"]
    assert project["dependencies"] == [f"rollstream>={own}"]


def test_no_placeholder_is_left():
    for kind in KINDS:
        for path, content in {**files_inside("a_b", kind), **files_outside("a_b", kind)}.items():
            text = f"{path} {content.decode()}".lower()
            assert "my_" not in text
            assert "myenv" not in text
        config = yaml.safe_load(files_inside("a_b", kind)[Path("environments/a_b/config.yaml")])
        assert config["name"] == "a_b"


@pytest.mark.parametrize(
    ("name", "said"),
    [
        ("Mcqa", "lower-case words"),
        ("a-b", "lower-case words"),
        ("../x", "lower-case words"),
        ("_a", "lower-case words"),
        ("a__b", "lower-case words"),
        ("a" * 61, "at most 60"),
        ("", "lower-case words"),
        ("class", "word of Python"),
        ("json", "word of Python"),
        ("common", "of this project"),
        ("taken", "answers to 'taken' already"),
        ("half", "answers to 'half' already"),
    ],
)
def test_names_that_are_none(name, said):
    with pytest.raises(ValueError, match=said):
        checked_name(name, {"taken", "half_simple_agent"})


@given(st.text(max_size=80))
def test_what_passes_for_a_name_is_an_identifier(text):
    try:
        name = checked_name(text)
    except ValueError:
        return
    assert name == text
    assert name.isidentifier()
    assert name.isascii()


def cli(*words):
    return CliRunner().invoke(app, ["environment", *words])


def test_the_command_writes_a_package_and_says_what_comes_next(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    done = cli("new", "unit_prices", "--kind", "state")
    assert done.exit_code == 0, done.output
    assert (tmp_path / "unit_prices" / "unit_prices" / "environment.py").is_file()
    assert "pip install -e unit_prices" in done.stderr
    assert "rollstream environment check unit_prices" in done.stderr


@pytest.mark.parametrize("name", ["numpy", "pytest", "yaml"])
def test_a_name_of_an_installed_package_is_refused(tmp_path, monkeypatch, name):
    monkeypatch.chdir(tmp_path)
    done = cli("new", name)
    assert (done.exit_code, f"{name!r} is an installed package" in done.stderr) == (2, True)
    assert list(tmp_path.iterdir()) == []


def test_a_folder_that_python_could_import_takes_no_name(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(tmp_path)
    (tmp_path / "plain_folder").mkdir()
    assert cli("new", "plain_folder", "--package", "p").exit_code == 0


def test_nothing_is_overwritten_unless_asked(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    cli("new", "unit_prices", "--package", "p")
    mine = tmp_path / "p" / "unit_prices" / "environment.py"
    mine.write_text("mine")
    (tmp_path / "p" / "unit_prices" / "README.md").unlink()
    refused = cli("new", "unit_prices", "--package", "p")
    assert refused.exit_code == 2
    assert "is there already; nothing was written" in refused.stderr
    assert mine.read_text() == "mine"
    assert not (tmp_path / "p" / "unit_prices" / "README.md").exists()
    assert cli("new", "unit_prices", "--package", "p", "--force").exit_code == 0
    assert mine.read_text() != "mine"


def test_inside_a_checkout_the_folder_goes_among_the_others(tmp_path, monkeypatch):
    for path in ("environments/environment.py", "rollstream/scaffold/x", "docs/x"):
        (tmp_path / path).parent.mkdir(parents=True)
        (tmp_path / path).touch()
    monkeypatch.chdir(tmp_path / "docs")
    assert cli("new", "unit_prices").exit_code == 0
    assert (tmp_path / "environments" / "unit_prices" / "config.yaml").is_file()
    assert (tmp_path / "tests" / "unit" / "environments" / "test_unit_prices.py").is_file()
    assert not (tmp_path / "pyproject.toml").exists()


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (("new", "a", "--kind", "magic"), "--kind magic: there are score, judge"),
        (("new", "mcqa"), "answers to 'mcqa' already"),
        (("new", "Not a name"), "lower-case words joined by underscores"),
    ],
)
def test_what_cannot_be_done_is_said(tmp_path, monkeypatch, words, said):
    monkeypatch.chdir(tmp_path)
    refused = cli(*words)
    assert refused.exit_code == 2
    assert said in refused.stderr
    assert list(tmp_path.iterdir()) == []


def test_the_help_lists_the_kinds_on_lines_of_their_own():
    lines = [line.split() for line in cli("new", "--help").output.splitlines()]
    assert {line[0] for line in lines if line} >= set(KINDS)
