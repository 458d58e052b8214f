"""The shape of the house: which way imports run, how large rooms are, that each says what it is for."""

import ast
import os
import re
import statistics
import subprocess
import sys
import sysconfig
import time
from graphlib import CycleError, TopologicalSorter
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
LAYERS = ["rollstream", "services", "environments", "schemas"]
MODULES = {
    ".".join(path.relative_to(ROOT).with_suffix("").parts).removesuffix(".__init__"): path
    for layer in LAYERS
    for path in sorted((ROOT / layer).rglob("*.py"))
    if "tests" not in path.relative_to(ROOT).parts
}
TREES = {name: ast.parse(path.read_text(), str(path)) for name, path in MODULES.items()}


def imports(name, *, lazy=True):
    """Modules of ours that a module imports; `lazy` includes imports inside functions."""
    inside = {
        id(n) for f in ast.walk(TREES[name]) if isinstance(f, ast.FunctionDef | ast.AsyncFunctionDef) for n in ast.walk(f)
    }
    typing_only = {
        id(n)
        for i in ast.walk(TREES[name])
        if isinstance(i, ast.If) and "TYPE_CHECKING" in ast.unparse(i.test)
        for n in ast.walk(i)
    }
    for node in ast.walk(TREES[name]):
        if not lazy and (id(node) in inside or id(node) in typing_only):
            continue
        if isinstance(node, ast.Import):
            yield from (a.name for a in node.names if a.name.split(".")[0] in LAYERS)
        elif isinstance(node, ast.ImportFrom):
            base = node.module or ""
            assert node.level == 0, f"{name} imports relative to itself"
            if base.split(".")[0] in LAYERS:
                yield from (f"{base}.{a.name}" if f"{base}.{a.name}" in MODULES else base for a in node.names)


@pytest.mark.parametrize("layer", LAYERS)
def test_imports_run_one_way(layer):
    above = set(LAYERS[: LAYERS.index(layer)])
    wrong = [f"{m} imports {i}" for m in MODULES if m.split(".")[0] == layer for i in imports(m) if i.split(".")[0] in above]
    assert wrong == []


def test_there_are_no_circles():
    graph = {name: {i for i in imports(name, lazy=False) if i != name} for name in MODULES}
    try:
        TopologicalSorter(graph).prepare()
    except CycleError as e:
        pytest.fail(" imports ".join(reversed(e.args[1])))


def test_modules_are_small():
    lines = {name: len(path.read_text().splitlines()) for name, path in MODULES.items()}
    assert {name: n for name, n in lines.items() if n > 600} == {}
    assert statistics.median(n for name, n in lines.items() if MODULES[name].name != "__init__.py") <= 130


def test_functions_are_small():
    lengths = [
        node.end_lineno - node.lineno + 1
        for tree in TREES.values()
        for node in ast.walk(tree)
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)
    ]
    assert statistics.median(lengths) <= 12


@pytest.mark.parametrize("name", MODULES)
def test_every_module_says_what_it_is_for(name):
    assert ast.get_docstring(TREES[name])


def tracked():
    listed = subprocess.run(["git", "ls-files", "-z"], cwd=ROOT, capture_output=True, timeout=20, check=False)
    if listed.returncode:
        pytest.skip("not a git checkout")
    return [ROOT / name for name in listed.stdout.decode().split("\0") if name]


def test_no_file_names_a_developers_machine():
    """Home directories, work areas, and interpreters of one machine; a fixed /tmp path would be shared by all its users."""
    own = re.compile(rb"(?<![\w.$})/-])/(work|root|Users|home)/[A-Za-z0-9_.]|\.pyenv|(?<![\w$})])/tmp/[a-z]")
    here = str(ROOT).encode()
    found = []
    for path in tracked():
        if path.suffix == ".lock" or path == Path(__file__) or not path.is_file():
            continue
        data = path.read_bytes()
        found += [f"{path.relative_to(ROOT)}: {m.group()!r}" for m in own.finditer(data)]
        found += [f"{path.relative_to(ROOT)}: the path of this checkout"] if here in data else []
    assert found == []


def test_the_lock_file_names_no_private_registry():
    hosts = set(re.findall(r"https?://([^/\"]+)", (ROOT / "uv.lock").read_text()))
    assert hosts <= {"pypi.org", "files.pythonhosted.org"}


def cpu_of(*command):
    """CPU seconds of the fastest of three runs: a busy machine makes a run longer, hardly costlier."""
    best = float("inf")
    for _ in range(3):
        before = os.times()
        subprocess.run(
            command, cwd=ROOT, check=True, capture_output=True, timeout=60, env=os.environ | {"PYTHONPATH": str(ROOT)}
        )
        after = os.times()
        best = min(best, after.children_user + after.children_system - before.children_user - before.children_system)
    return best


def yardstick():
    """CPU seconds of a fixed computation, against those on the machine where the bound was set."""
    started = time.process_time()
    sum(i * i for i in range(1_000_000))
    return max(1.0, (time.process_time() - started) / 0.06)


@pytest.mark.parametrize("command", ["import rollstream", "--help"])
def test_the_command_line_answers_at_once(command):
    """Under 300 ms CPU: heavy imports (the broker, openai, fsspec) wait until they are needed."""
    script = Path(sysconfig.get_path("scripts")) / "rollstream"
    argv = [sys.executable, "-c", command] if command.startswith("import") else [script, command]
    assert cpu_of(*argv) < 0.3 * yardstick()
