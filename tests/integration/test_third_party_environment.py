"""Packages of other people, found by entry point and run on a real Kafka; a broken one and one that lacks a package hide nobody."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
from support.installed import install

from rollstream.scaffold.files import files_outside
from rollstream.scaffold.writing import write

pytestmark = [pytest.mark.integration, pytest.mark.timeout(120)]
PROGRAM = [sys.executable, "-c", "from rollstream.cli import main; main()"]


def package(site, name, kind, *changes):
    """A package from the template of `kind`, as installing it into `site` would leave it."""
    files = {str(path): content.decode() for path, content in files_outside(name, kind).items()}
    for file, old, new in changes:
        assert old in files[file]
        files[file] = files[file].replace(old, new)
    install(site, name, files.pop("pyproject.toml"))
    write(site, {Path(path): text.encode() for path, text in files.items()})


@pytest.fixture(scope="module")
def site(tmp_path_factory):
    """A directory on the path with four packages: two good ones, one that cannot be read, one that lacks what it needs."""
    folder = tmp_path_factory.mktemp("site")
    package(folder, "their_shop", "state")
    package(folder, "their_copies", "cpu")
    package(folder, "their_ruin", "score", ("their_ruin/config.yaml", "variants:", "colour: red\nvariants:"))
    extra = ("their_wish/config.yaml", "license:", "extra: wishes\nlicense:")
    package(folder, "their_wish", "score", extra, ("pyproject.toml", "test = [", 'wishes = ["no-such-package"]\ntest = ['))
    return folder


@pytest.fixture
def rollstream(site, tmp_path):
    def run(*words):
        path = os.pathsep.join([str(site), os.environ.get("PYTHONPATH", "")])
        return subprocess.run(
            [*PROGRAM, *words], cwd=tmp_path, env={**os.environ, "PYTHONPATH": path}, capture_output=True, text=True, timeout=100, check=False
        )  # fmt: skip

    return run


def test_they_are_listed_and_what_cannot_be_used_is_said(rollstream):
    done = rollstream("environments")
    assert done.returncode == 0
    listed = [line.split()[0] for line in done.stdout.splitlines()]
    assert {"their_shop", "their_copies", "mcqa"} <= set(listed)
    assert "their_ruin" not in listed
    assert "not usable: their_ruin: config.yaml.colour: unknown key" in done.stderr
    assert (
        "not usable: their_wish: it needs no-such-package, not installed here: pip install 'their_wish[wishes]'" in done.stderr
    )


@pytest.mark.parametrize(("name", "field"), [("their_shop", "entries"), ("their_copies", "common_words")])
def test_they_run_through_all_stages(rollstream, kafka, topics, tmp_path, name, field):
    where = ["-b", kafka.bootstrap_servers, "--prefix", topics.prefix, "--set", f"topics.partitions={topics.partitions}"]
    done = rollstream("run", "--environment", name, "--model", "scripted", "-o", "out/r.jsonl", *where)
    assert done.returncode == 0, done.stdout + done.stderr
    assert "5 dispatched = 5 scored" in done.stdout
    lines = [json.loads(line) for line in (tmp_path / "out/r.jsonl").read_text().splitlines()]
    assert len(lines) == 5
    assert all(field in line and 0.0 <= line["reward"] <= 1.0 for line in lines)


def test_asking_for_one_that_lacks_a_package_says_what_installs_it(rollstream, kafka):
    done = rollstream("run", "--environment", "their_wish", "--model", "scripted", "-b", kafka.bootstrap_servers)
    assert done.returncode in (1, 2)
    assert "'their_wish' cannot be used: it needs no-such-package" in done.stderr
    assert "pip install 'their_wish[wishes]'" in done.stderr
