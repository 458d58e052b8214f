"""The documents say what is so: blocks have kinds, links lead somewhere, tables are those of the program."""

import itertools
import re
import shlex
from pathlib import Path

import pytest
import typer
import yaml
from support.examples import (
    ALONE,
    KINDS,
    OTHERS,
    PAGES,
    ROOT,
    SESSIONS,
    all_blocks,
    anchors,
    blocks,
    links,
    missing,
    plain,
    read,
    rows,
    tables,
)

from environments.discovery import discover
from rollstream import catalogue
from rollstream.cli import app
from rollstream.scaffold.kinds import KINDS as KINDS_OF_TEMPLATES
from rollstream.settings import load
from rollstream.settings.load import leaves, variable
from rollstream.settings.model import OtherModel, Settings
from schemas import topics
from schemas.errors import FailureClass
from services.metrics.catalogue import ALL as METRICS

NOT_YET = {n for n in ("docs/performance.md",) if not (ROOT / n).exists()}  # figures come last; the page is linked already
DAY_MS = 86_400_000
TABLES = {"commands", "environments", "kinds", "metrics", "settings", "topics", "failure-classes"}


def everything():
    found = [str(p.relative_to(ROOT)) for folder in ("docs", "deploy") for p in (ROOT / folder).rglob("*.md")]
    return ["README.md", *sorted(found)]


@pytest.mark.parametrize("page", everything())
def test_every_block_of_every_page_is_an_example_that_some_test_runs(page):
    if page in OTHERS:
        assert page in (ROOT / OTHERS[page]).read_text()
        return
    found = blocks(page)
    assert page in PAGES or not [b for b in found if b.language not in ("", "text")], "add the page to PAGES"
    if page in PAGES:
        assert [f"{b}: {b.kind or 'no kind'}" for b in found if b.kind not in KINDS] == []
        assert len(found) == len(re.findall(r"^```", read(page), re.MULTILINE)) / 2
        assert any(b.kind == "session" for b in found) == (page in (*SESSIONS, *ALONE))


def test_every_kind_of_example_is_there():
    later = {"benchmark"} if NOT_YET else set()
    assert [kind for kind in KINDS if not all_blocks(kind) and kind not in later] == []


@pytest.mark.parametrize("page", everything())
def test_links_lead_somewhere(page):
    wrong = []
    for target in links(page):
        path, _, anchor = target.partition("#")
        there = ((ROOT / page).parent / path).resolve() if path else ROOT / page
        name = str(there.relative_to(ROOT))
        if name in NOT_YET:
            continue
        if not there.exists() or (anchor and anchor not in anchors(name)):
            wrong.append(target)
    assert wrong == []


@pytest.mark.parametrize("page", PAGES)
def test_every_table_that_is_marked_is_checked(page):
    assert tables(page).keys() <= TABLES
    assert read(page).count("<!-- table:") == read(page).count("<!-- end of table -->") == len(tables(page))


def commands():
    group = typer.main.get_command(app)
    return group.commands


def test_the_commands_are_those_of_the_program():
    assert sorted(row[0] for row in rows(tables("README.md")["commands"])) == sorted(commands())


def test_the_environments_are_those_of_the_manifests():
    entries, broken = discover()
    assert broken == []
    for page, table in catalogue.tables(entries).items():
        assert tables(page)["environments"] == table, f"{page}: run `python -m rollstream.catalogue`"


def test_the_kinds_are_those_of_the_templates():
    assert dict(rows(tables("docs/environments.md")["kinds"])) == KINDS_OF_TEMPLATES


def test_the_metrics_table_lists_what_the_workers_serve():
    """platform.md G4"""
    assert list(rows(tables("docs/observability.md")["metrics"])) == [[m.name, m.kind, m.says] for m in METRICS]


def test_the_settings_are_those_of_the_program():
    shown = {key: default for key, default, _ in rows(tables("docs/operations.md")["settings"])}
    expected = {}
    for key, value in leaves(Settings.model_construct()):
        text = "–" if value is None else f"{value:g}" if isinstance(value, float) else str(value)
        expected[key] = text
    assert shown == expected


def test_the_topics_are_those_of_the_program():
    shown = [row[:4] for row in rows(tables("docs/operations.md")["topics"])]
    expected = []
    for spec in topics.ALL:
        kept = "the last of each run" if spec.compacted else f"{spec.retention_ms // DAY_MS} days"
        partitions = "1" if spec.single_partition else str(topics.Topics().partitions)
        expected.append([spec.name, partitions, kept, f"{spec.max_message_bytes >> 20} MiB"])
    assert shown == expected


def test_the_failure_classes_are_those_of_the_program():
    assert {row[0] for row in rows(tables("docs/operations.md")["failure-classes"])} == {str(c) for c in FailureClass}


@pytest.mark.parametrize("block", all_blocks("settings"), ids=str)
def test_settings_load(block, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    for name in re.findall(r"[\w-]+\.pem", block.text):
        Path(name).touch()
    if block.language == "sh":
        given = dict(
            line.removeprefix("export ").split("=", 1) for line in shlex.split(block.text, comments=True) if "=" in line
        )
        assert given
        for name, value in given.items():
            monkeypatch.setenv(name, value)
        origins = load().origins
        assert set(given) <= {origin.removeprefix("environment ") for origin in origins.values()}
    else:
        file = tmp_path / f"settings.{block.language}"
        file.write_text(block.text)
        loaded = load(config=file)
        assert any(origin.startswith("file") for origin in loaded.origins.values())


@pytest.mark.parametrize("block", all_blocks("picture"), ids=str)
def test_pictures_name_what_exists_and_fit_a_screen(block):
    names = {spec.name for spec in topics.ALL}
    assert max(map(len, block.text.splitlines())) <= 110
    assert set(re.findall(r"[a-z]+(?:-[a-z]+)+", block.text)) <= names | {"finished-beyond"}


@pytest.mark.parametrize("block", all_blocks("format"), ids=str)
def test_forms_name_headers_and_fields_that_exist(block):
    source = "\n".join(p.read_text() for folder in ("schemas", "services", "rollstream") for p in (ROOT / folder).rglob("*.py"))
    words = set(re.findall(r"\b(?:rs-[a-z]+|_ng_[a-z_]+|[a-z]+_[a-z_]+)\b", block.text))
    assert words
    assert {w for w in words if w not in source} == set()


def test_benchmark_commands_name_modules_and_scripts_that_exist():
    for block in all_blocks("benchmark"):
        for line in block.text.splitlines():
            words = [w for w in shlex.split(line, comments=True) if "=" not in w]
            named = (
                words[words.index("-m") + 1].replace(".", "/") if "-m" in words else next((w for w in words if "/" in w), "")
            )
            found = [ROOT / named, ROOT / f"{named}.py", ROOT / named / "__main__.py"]
            assert not words or any(p.is_file() for p in found), f"{block}: {line}"


@pytest.mark.parametrize("block", all_blocks("compose"), ids=str)
def test_compose_commands_name_files_services_and_commands_that_exist(block):
    services = yaml.safe_load((ROOT / "deploy/compose.yaml").read_text())["services"]
    for line in block.text.splitlines():
        words = shlex.split(line, comments=True)
        if words[0] == "cp":
            assert (ROOT / words[1]).is_file()
        elif words[0] == "rollstream":
            _parsed(words[1:])
        else:
            assert words[:2] == ["docker", "compose"]
            _compose(words[2:], services)


def _compose(words, services):
    assert words[:2] == ["-f", "deploy/compose.yaml"]
    assert words[2] in ("up", "down", "run", "cp")
    scaled = [w.split("=")[0] for flag, w in itertools.pairwise(words) if flag == "--scale"]
    assert set(scaled) <= services.keys()
    if words[2] == "cp":
        assert words[3].partition(":")[0] in services
    if words[2] == "run":
        service, *rest = [w for w in words[3:] if not w.startswith("--")]
        assert service in services
        _parsed(rest)


def _parsed(words):
    """Whether the program takes these words."""
    command = commands()[words[0]]
    with command.make_context(words[0], list(words[1:]), resilient_parsing=False):
        pass


def test_variables_are_named_as_the_program_names_them():
    known = {variable(key) for key, _ in leaves(Settings.model_construct())}
    known |= {variable(f"models.judge.{field}") for field in OtherModel.model_fields}
    source = "\n".join(p.read_text() for p in (ROOT / "rollstream").rglob("*.py"))
    for page in PAGES:
        for name in re.findall(r"ROLLSTREAM_[A-Z_]*[A-Z]", read(page)):
            assert name in known or f'"{name}"' in source or f'"{name.removeprefix("ROLLSTREAM_")}"' in source, (
                f"{page}: {name}"
            )


def test_an_output_that_was_not_printed_is_found():
    printed = "sent 6 rows as run a\n│ mcqa  │ 24 │\nend\n"
    assert missing("sent 9 rows as run a\n…\n│ mcqa │      3 │\n", printed) == []
    assert missing("sent 9 rows as run b\nend\n", printed) == ["sent 9 rows as run b", "end"]
    assert missing("end\nsent 6 rows as run a\n", printed) == ["sent 6 rows as run a"]
    assert plain("run solo-20261201-134608-b57f: 10 of 12") == plain("run solo-20270101-000000-0000: 9 of 9")
