"""Tables of environments for documents: links, escapes, order; and the command that prints them."""

import json
from pathlib import Path

import pytest
from support.installed import install
from typer.testing import CliRunner

from environments.discovery import Entry
from environments.manifest import AgentBlock, Manifest, Variant
from rollstream.catalogue import by_domain, one_by_one, ours, replaced
from rollstream.cli import app
from rollstream.scaffold.files import files_outside
from rollstream.scaffold.writing import write


def entry(name, domain="math", **fields):
    distribution = fields.pop("distribution", "rollstream")
    variants = {name: Variant(agent=AgentBlock(name=f"{name}_agent"))}
    return Entry(Manifest(name=name, domain=domain, description="Sums | and\n such", variants=variants, **fields), Path("environments", name), name, distribution)  # fmt: skip


def test_a_line_for_each_environment_by_domain_and_name():
    table = one_by_one([entry("b"), entry("a", needs=("judge",), extra="a"), entry("c", "code")], "../environments")
    assert table.splitlines()[2:] == [
        "| [`c`](../environments/c/README.md) | code | Sums \\| and such | 1 | – |",
        "| [`a`](../environments/a/README.md) | math | Sums \\| and such | 1 | judge, `rollstream[a]` |",
        "| [`b`](../environments/b/README.md) | math | Sums \\| and such | 1 | – |",
    ]


def test_a_line_for_each_domain():
    table = by_domain([entry("a"), entry("b"), entry("c", "code")])
    assert table.splitlines()[2:] == [
        "| code | [`c`](environments/c/README.md) |",
        "| math | [`a`](environments/a/README.md), [`b`](environments/b/README.md) |",
    ]


def test_only_ours_stand_in_our_documents():
    assert [e.manifest.name for e in ours([entry("b"), entry("a"), entry("theirs", distribution="shop")])] == ["a", "b"]


def test_a_page_without_a_table_is_an_error():
    page = "x\n<!-- table: environments -->\nold\n<!-- end of table -->\n<!-- table: other -->\nkept\n<!-- end of table -->\n"
    assert replaced(page, "\\1 new\n") == page.replace("old", "\\1 new")
    with pytest.raises(ValueError, match="has no"):
        replaced("x", "new")


def cli(*words):
    return CliRunner().invoke(app, ["environments", *words])


def test_the_command_lists_a_domain_and_prints_markdown():
    shown = cli("--domain", "safety")
    assert "xstest" in shown.stdout
    assert "mcqa" not in shown.stdout
    assert "| `mcqa` | knowledge |" in cli("--markdown").stdout


def test_the_command_says_what_is_missing_and_how_to_install_it(tmp_path, monkeypatch):
    files = files_outside("lacks_something", "score")
    config = Path("lacks_something/config.yaml")
    files[config] = files[config].replace(b"license:", b"extra: rare\nlicense:")
    project = files.pop(Path("pyproject.toml")).decode().replace("test = [", 'rare = ["no-such-package"]\ntest = [')
    write(tmp_path, files)
    install(tmp_path, "lacks_something", project)
    monkeypatch.syspath_prepend(tmp_path)
    shown = cli()
    assert shown.exit_code == 0
    assert (
        "not usable: lacks_something: it needs no-such-package, not installed here: pip install 'lacks_something[rare]'"
        in shown.stderr
    )
    assert "mcqa " in shown.stdout
    found = {e["name"]: e for e in json.loads(cli("--json").stdout)}
    assert found["lacks_something"]["package"] == "lacks_something"
    assert found["mcqa"]["missing"] is None
