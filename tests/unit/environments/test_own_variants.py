"""Variants of one's own (platform.md E4): in this process's registry, in those of its children, in place of shipped ones."""

import os
import subprocess
import sys

import pytest
from pydantic import ValidationError

from environments.own import MAX_BYTES, VARIABLE, OwnVariant, declare, declared
from environments.registry import Registry
from rollstream.cli.common import load_settings
from rollstream.settings import SettingsError, load
from rollstream.settings.load import leaves
from schemas.errors import DataError


def variant(environment="mcqa", agent="patient_agent", steps=7, **config):
    return OwnVariant(environment=environment, agent={"name": agent, "config": {"max_steps": steps}}, config=config)


@pytest.fixture(autouse=True)
def _clean(monkeypatch):
    monkeypatch.setenv(VARIABLE, "")  # restored afterwards, whatever was declared meanwhile
    monkeypatch.delenv(VARIABLE)


def test_a_variant_is_found_by_its_name_and_by_its_agents_name():
    registry = Registry.load({"lenient": variant(grading_mode="lenient_boxed")})
    for found in (registry.binding("lenient", None), registry.binding(None, "patient_agent")):
        assert (found.name, found.environment.config.grading_mode) == ("lenient", "lenient_boxed")
        assert found.agent.config.max_steps == 7
    assert registry.binding("mcqa", None).environment.config.grading_mode is None


def test_a_variant_takes_the_place_of_a_shipped_one_of_its_name_or_its_agents_name():
    registry = Registry.load({"mcqa": variant(agent="mcqa_simple_agent", steps=2)})
    assert registry.binding("mcqa", None).agent.config.max_steps == 2
    registry = Registry.load({"short": variant(agent="mcqa_simple_agent", steps=3)})
    assert registry.binding(None, "mcqa_simple_agent").name == "short"
    assert registry.binding("mcqa", None).agent.config.max_steps is None
    registry = Registry.load({"mcqa": variant("ruler")})
    assert type(registry.binding("mcqa", None).environment).__name__ == "Ruler"


def test_a_variant_of_no_environment_is_broken_with_the_nearest_word_and_the_others_live():
    registry = Registry.load({"lost": variant("mcqaa"), "kept": variant()})
    assert [(b.name, b.error) for b in registry.broken if b.name == "lost"] == [
        ("lost", "there is no environment 'mcqaa'; did you mean 'mcqa'?")
    ]
    with pytest.raises(DataError, match="did you mean 'mcqa'"):
        registry.binding("lost", None)
    assert registry.binding("kept", None).agent_name == "patient_agent"


def test_a_bad_value_names_its_field():
    with pytest.raises(DataError, match=r"config\.grading_mode"):
        Registry.load({"bad": variant(grading_mode="generous")}).binding("bad", None)


def test_children_have_what_was_declared_and_nothing_that_was_before():
    declare({"lenient": variant(grading_mode="lenient_boxed")})
    code = "from environments.registry import Registry; print(Registry.load().binding('lenient', None).environment.config.grading_mode)"
    said = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True, timeout=50)
    assert said.stdout.strip() == "lenient_boxed"
    assert declared() == {"lenient": variant(grading_mode="lenient_boxed")}
    declare({})
    assert VARIABLE not in os.environ
    assert declared() == {}


def test_what_does_not_fit_a_variable_or_cannot_be_read_is_said(monkeypatch):
    with pytest.raises(DataError, match="put long prompts into files"):
        declare({"long": variant(text="x" * MAX_BYTES)})
    monkeypatch.setenv(VARIABLE, '{"a": {}}')
    with pytest.raises(DataError, match=rf"{VARIABLE}: variants\.a\.\S+: "):
        Registry.load()


def test_settings_carry_variants_and_commands_declare_them(tmp_path):
    path = tmp_path / "rollstream.toml"
    path.write_text('[variants.lenient]\nenvironment = "mcqa"\nagent = {name = "a", config = {max_steps = 4}}\n')
    loaded = load_settings(config=path)
    assert dict(leaves(loaded.settings))["variants.lenient.agent.config.max_steps"] == 4
    assert Registry.load().binding(None, "a").agent.config.max_steps == 4
    load_settings()
    with pytest.raises(DataError, match="unknown agent"):
        Registry.load().binding(None, "a")


def test_an_unknown_key_of_a_variant_is_an_error_that_names_file_and_key(tmp_path):
    path = tmp_path / "s.yaml"
    path.write_text("variants:\n  v: {environment: mcqa, agent: {name: a}, konfig: {}}\n")
    with pytest.raises(SettingsError, match=r"variants\.v\.konfig: unknown setting.*s\.yaml"):
        load(config=path)
    with pytest.raises(ValidationError):
        OwnVariant(environment="", agent={"name": "a"})
