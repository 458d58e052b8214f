"""Prompts from rows' fields, and where files are looked for (platform.md B7, E2)."""

from __future__ import annotations

import io
import json
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from environments.registry import Registry
from rollstream.runfiles.expansion import Plan
from rollstream.runfiles.materialize import materialize
from rollstream.runfiles.problems import PlanError
from rollstream.runfiles.prompt_config import PromptConfig, Template
from rollstream.runfiles.search import SearchRoots

REF = {"agent_ref": {"type": "responses_api_agents", "name": "mcqa_simple_agent"}}


def config(tmp_path: Path, text: str) -> PromptConfig:
    path = tmp_path / "prompt.yaml"
    path.write_text(text, "utf-8")
    return PromptConfig.read(path)


def expand(tmp_path: Path, prompt: PromptConfig, *rows: Any, **plan: Any) -> Any:
    data = b"".join(json.dumps(r).encode() + b"\n" for r in rows)
    out = tmp_path / "m.jsonl"
    done = materialize(io.BytesIO(data), "rows.jsonl", out, Plan(prompt=prompt, **plan), Registry.load())
    return done, [json.loads(x) for x in out.read_bytes().splitlines()] if done.path else []


def test_b7_messages_from_top_level_fields(tmp_path: Path) -> None:
    prompt = config(tmp_path, "system: You know {domain}.\nuser: 'Q: {question} {{literally}} {n} {gone}'\n")
    row = {"question": "é {domain}?", "domain": "sums", "n": 3, "gone": None}
    assert prompt.messages(row) == [
        {"role": "system", "content": "You know sums."},
        {"role": "user", "content": "Q: é {domain}? {literally} 3 None"},
    ]
    assert config(tmp_path, "user: '{question}'").messages(row) == [{"role": "user", "content": "é {domain}?"}]


def test_b1_the_prompt_comes_first_and_other_parameters_stay(tmp_path: Path) -> None:
    prompt = config(tmp_path, "user: '{question}'")
    rows = [
        {"question": "one", **REF, "responses_create_params": {"temperature": 0.5, "input": []}},
        {"question": "two", **REF},
    ]
    done, made = expand(tmp_path, prompt, *rows, overrides={"max_output_tokens": 7})
    assert done.problems == ()
    assert [r["responses_create_params"] for r in made] == [
        {"temperature": 0.5, "input": [{"role": "user", "content": "one"}], "max_output_tokens": 7},
        {"input": [{"role": "user", "content": "two"}], "max_output_tokens": 7},
    ]


def test_b7_rows_with_an_input_of_their_own_are_one_error(tmp_path: Path) -> None:
    rows = [{"question": "q", **REF, "responses_create_params": {"input": text}} for text in ("mine", "", "mine too")]
    with pytest.raises(PlanError, match="2 rows have an input of their own, in lines 1, 3;"):
        expand(tmp_path, config(tmp_path, "user: '{question}'"), *rows)
    assert not (tmp_path / "m.jsonl").exists()


def test_b7_a_missing_field_is_named_with_those_there_are(tmp_path: Path) -> None:
    done, _ = expand(tmp_path, config(tmp_path, "user: '{qestion}'"), {"question": "q", **REF})
    assert str(done.problems[0]) == ("rows.jsonl:1: the prompt config needs the field qestion; the row has agent_ref, question")


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("system: hello", "a prompt config needs `user`; it has system"),
        ("- user", "a prompt config is a mapping with `user`"),
        ("", "a prompt config is a mapping"),
        ("user: [", "is not YAML"),
        ("user: [a]", "user must be text, found ['a']"),
        ("user: |\n  a\n  {b", "user, line 2: { names no field; write {{ for a brace itself"),
        ("user: 'a } b'", "} names no field"),
        ("user: 'a {} b'", "{} names no field"),
        ("user: !!python/object/apply:os.system ['true']", "is not YAML"),
    ],
)
def test_what_is_no_prompt_config(tmp_path: Path, text: str, said: str) -> None:
    with pytest.raises(PlanError) as error:
        config(tmp_path, text)
    assert said in str(error.value)
    assert str(tmp_path / "prompt.yaml") in str(error.value)


def test_a_key_that_is_not_used_is_said_with_the_nearest(tmp_path: Path) -> None:
    done, _ = expand(tmp_path, config(tmp_path, "user: x\nsytem: y\n"), {**REF})
    assert done.warnings == (f"{tmp_path}/prompt.yaml: sytem is not used; did you mean system?",)


@given(st.text(), st.dictionaries(st.text(st.characters(exclude_characters="{}"), min_size=1), st.text(), max_size=3))
def test_b7_templates_are_those_of_the_definition(literal: str, fields: dict[str, str]) -> None:
    escaped = literal.replace("{", "{{").replace("}", "}}")
    text = escaped + "".join(f"|{{{name}}}" for name in fields)
    assert Template.parse(text, "x").render(fields) == literal + "".join(f"|{value}" for value in fields.values())


@given(st.text(alphabet="{}ab", max_size=30))
def test_a_template_is_read_or_refused(text: str) -> None:
    try:
        template = Template.parse(text, "x")
    except PlanError:
        return
    assert isinstance(template.render(dict.fromkeys(template.parts[1::2], "v")), str)


def test_e2_first_root_wins_and_hidden_ones_are_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for folder in ("mine", "extra", "here"):
        (tmp_path / folder).mkdir()
        (tmp_path / folder / "p.yaml").write_text(folder)
    (tmp_path / "extra" / "only.yaml").touch()
    monkeypatch.chdir(tmp_path / "here")
    roots = SearchRoots.of([tmp_path / "mine"], {"NEMO_GYM_EXTRA_ROOTS": str(tmp_path / "extra")})
    found = roots.find(Path("p.yaml"))
    assert found.path == tmp_path / "mine" / "p.yaml"
    assert found.shadowed == (tmp_path / "extra" / "p.yaml", Path("p.yaml"))
    assert found.warning() == f"{tmp_path}/mine/p.yaml is used; it hides {tmp_path}/extra/p.yaml, p.yaml"
    assert roots.find(Path("only.yaml")).path == tmp_path / "extra" / "only.yaml"
    assert roots.find(tmp_path / "here" / "p.yaml").path == tmp_path / "here" / "p.yaml"
    assert roots.find(Path("environments/mcqa/data/example.jsonl")).path.is_file()  # of the install
    with pytest.raises(FileNotFoundError, match=r"looked for in .*mine, .*extra, .*here"):
        roots.find(Path("nowhere.yaml"))
