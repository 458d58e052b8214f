"""Names lead to environments, and one broken package never takes the others down."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from environments.agents.simple_agent import SimpleAgent
from environments.discovery import discover
from environments.registry import Registry, agent_types
from environments.testing import EnvironmentHarness, response
from schemas.errors import DataError

CONFIG = """\
name: {name}
description: a test
domain: test
variants:
  {name}:
    agent: {{name: {agent}, type: {type}}}
    config: {{{config}}}
"""

MODULE = """\
from environments.environment import Config, Environment, Verdict
from environments.agents.agent import Agent, Finish, Step

class Settings(Config):
    reward: float = 0.25

class Base(Environment):
    Config = Settings

class Quarter(Base):
    def verify(self, task, response, state, context):
        return Verdict(self.config.reward)

class OwnAgent(Agent):
    def next(self, view, replies):
        return Step(Finish())
"""


@pytest.fixture
def site(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """A directory on the path, where other people's packages get installed."""
    monkeypatch.syspath_prepend(tmp_path)
    before = set(sys.modules)
    yield tmp_path
    for name in set(sys.modules) - before:
        del sys.modules[name]


def install(site: Path, package: str, config: str | bytes | None, module: str = MODULE, init: str = "") -> None:
    """Write a package and the metadata that an installed distribution leaves."""
    folder = site / package
    folder.mkdir()
    (folder / "__init__.py").write_text(init, "utf-8")
    (folder / "environment.py").write_text(module, "utf-8")
    if config is not None:
        (folder / "config.yaml").write_bytes(config if isinstance(config, bytes) else config.encode())
    register(site, package, package)


def register(site: Path, name: str, value: str) -> None:
    info = site / f"{name}-1.0.dist-info"
    info.mkdir()
    (info / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {name}\nVersion: 1.0\n", "utf-8")
    (info / "entry_points.txt").write_text(f"[rollstream.environments]\n{name} = {value}\n", "utf-8")


def config(name: str, *, agent: str | None = None, kind: str = "simple_agent", settings: str = "") -> str:
    return CONFIG.format(name=name, agent=agent or f"{name}_agent", type=kind, config=settings)


BUILT_IN = {"mcqa", "example_single_tool_call", "example_multi_step", "example_session_state_mgmt"}


def test_everything_of_ours_is_found_and_nothing_is_broken() -> None:
    registry = Registry.load()
    assert {e.manifest.name for e in registry.entries} >= BUILT_IN
    assert registry.broken == []
    for entry in registry.entries:
        for variant in entry.manifest.variants:
            assert registry.binding(variant, None).name == variant


def test_finding_imports_no_environment(site: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    install(site, "tp_lazy", config("tp_lazy"), init="raise RuntimeError('imported')")
    for name in [m for m in sys.modules if m.startswith("environments.mcqa")]:
        monkeypatch.delitem(sys.modules, name)
    registry = Registry.load()
    assert "tp_lazy" in {e.manifest.name for e in registry.entries}
    assert not any(m.startswith("environments.mcqa") for m in sys.modules)


def test_a_package_registers_an_environment_and_its_own_agent(site: Path) -> None:
    install(site, "tp_good", config("tp_good", kind="'tp_good.environment:OwnAgent'", settings="reward: 0.75"))
    binding = Registry.load().binding(None, "tp_good_agent")
    assert binding.name == "tp_good"
    assert type(binding.agent).__name__ == "OwnAgent"
    harness = EnvironmentHarness(binding)
    harness.seed({"responses_create_params": {"input": "?"}})
    assert harness.verify(response()).reward == 0.75


BAD = {
    "tp_no_config": (None, MODULE, "", "FileNotFoundError"),
    "tp_not_yaml": ("name: [", MODULE, "", "config.yaml is not YAML"),
    "tp_not_utf8": (b"\xff\xfe", MODULE, "", "UnicodeDecodeError"),
    "tp_no_fields": ("name: tp_no_fields", MODULE, "", "config.yaml.description: missing"),
    "tp_unknown_key": (config("tp_unknown_key") + "colour: red\n", MODULE, "", "config.yaml.colour: unknown key"),
    "tp_takes_a_name": (config("mcqa"), MODULE, "", "the name 'mcqa' is already taken by environments.mcqa"),
    "tp_takes_an_agent": (
        config("tp_takes_an_agent", agent="mcqa_simple_agent"),
        MODULE,
        "",
        "the name 'mcqa_simple_agent' is already taken by environments.mcqa",
    ),
}

UNUSABLE = {
    "tp_raises": (config("tp_raises"), "raise OSError('no licence')", "", "OSError: no licence"),
    "tp_syntax": (config("tp_syntax"), "def (", "", "SyntaxError"),
    "tp_init_raises": (config("tp_init_raises"), MODULE, "import nothing_of_that_name", "ModuleNotFoundError"),
    "tp_empty": (config("tp_empty"), "", "", "defines no Environment"),
    "tp_settings": (config("tp_settings", settings="colour: red"), MODULE, "", "config.colour: unknown key"),
    "tp_agent_type": (config("tp_agent_type", kind="simple_agnet"), MODULE, "", "did you mean 'simple_agent'"),
    "tp_agent_class": (config("tp_agent_class", kind="'tp_agent_class.environment:Nobody'"), MODULE, "", "AttributeError"),
}


def test_broken_packages_are_listed_with_their_error_and_the_rest_works(site: Path) -> None:
    for name, (text, module, init, _) in (BAD | UNUSABLE).items():
        install(site, name, text, module, init)
    register(site, "tp_nowhere", "tp_nowhere")
    register(site, "tp_nowhere_below", "tp_good_parent.child")
    install(site, "tp_fine", config("tp_fine"))
    registry = Registry.load()

    broken = {b.package: b.error for b in registry.broken}
    for name, (_, _, _, reason) in BAD.items():
        assert reason in broken.pop(name)
    assert "there is no package 'tp_nowhere'" in broken.pop("tp_nowhere")
    assert "tp_good_parent" in broken.pop("tp_good_parent.child")
    assert broken == {}

    assert registry.binding("tp_fine", None).environment.config.reward == 0.25
    assert registry.binding(None, "mcqa_simple_agent").environment.__class__.__name__ == "Mcqa"
    for name, (_, _, _, reason) in UNUSABLE.items():
        for _ in range(2):
            with pytest.raises(DataError, match="cannot be used") as caught:
                registry.binding(name, None)
            assert reason in str(caught.value)
    with pytest.raises(DataError, match=r"'tp_not_yaml' cannot be used: config\.yaml is not YAML"):
        registry.binding("tp_not_yaml", None)


def test_a_broken_folder_of_ours_does_not_hide_the_others(tmp_path: Path) -> None:
    for name in ("a_good", "b_bad"):
        (tmp_path / name).mkdir()
    (tmp_path / "a_good" / "config.yaml").write_text(config("a_good"), "utf-8")
    (tmp_path / "b_bad" / "config.yaml").write_text("- 1", "utf-8")
    found, broken = discover(tmp_path)
    assert [e.manifest.name for e in found] == ["a_good"]
    assert [(b.name, b.package) for b in broken] == [("b_bad", "environments.b_bad")]


@pytest.mark.parametrize(
    ("variant", "agent", "message"),
    [
        ("mcqu", None, "unknown environment 'mcqu'; did you mean 'mcqa'"),
        (None, "mcqa_simple_agnt", "unknown agent 'mcqa_simple_agnt'; did you mean 'mcqa_simple_agent'"),
        ("zzz", None, r"unknown environment 'zzz' \(there are: "),
        (None, None, "names no agent"),
    ],
)
def test_unknown_names_come_with_the_nearest(variant: str | None, agent: str | None, message: str) -> None:
    with pytest.raises(DataError, match=message):
        Registry.load().binding(variant, agent)


def test_a_binding_is_made_once() -> None:
    registry = Registry.load()
    assert registry.binding("mcqa", None) is registry.binding("mcqa", None)
    assert isinstance(registry.binding("mcqa", None).agent, SimpleAgent)
    assert "simple_agent" in agent_types()
