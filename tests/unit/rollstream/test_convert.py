"""`rollstream convert`: a configuration of NeMo Gym (platform.md E) as a settings file of ours."""

import pytest
import yaml
from typer.testing import CliRunner

from rollstream.cli import app
from rollstream.settings import load

CONFIG = """
config_paths: [resources_servers/xstest/configs/xstest.yaml, responses_api_models/vllm_model/configs/vllm_model.yaml]
xstest: {resources_servers: {xstest: {judge_output_format: wildguard, judge_model_server: {type: responses_api_models, name: guard_model}}}}
guard_model:
  responses_api_models:
    vllm_model: {entrypoint: app.py, base_url: ['http://a/v1', 'http://b/v1'], api_key: sk-guard-1, model: guard, default_headers: {X-A: abc123}}
"""
ENV = "policy_base_url: http://p/v1\npolicy_api_key: sk-policy-1\npolicy_model_name: m\n"


@pytest.fixture(autouse=True)
def _here(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "c.yaml").write_text(CONFIG)
    (tmp_path / "env.yaml").write_text(ENV)


def run(*arguments):
    return CliRunner().invoke(app, ["convert", *arguments])


def test_the_file_is_settings_that_load_and_has_no_secret(monkeypatch, tmp_path):
    found = run("c.yaml", "-o", "ours.yaml")
    assert found.exit_code == 0, found.stderr
    text = (tmp_path / "ours.yaml").read_text()
    for secret in ("sk-guard-1", "sk-policy-1", "abc123"):
        assert secret not in text + found.stdout + found.stderr
    assert "# models.guard.api_key: put it into ROLLSTREAM_MODELS__GUARD__API_KEY\n" in text
    monkeypatch.setenv("ROLLSTREAM_MODELS__GUARD__API_KEY", "sk-guard-1")
    settings = load(config="ours.yaml").settings
    assert settings.model.url == "http://p/v1"
    assert settings.models["guard"].urls == ("http://a/v1", "http://b/v1")
    assert settings.variants["xstest"].config["judge_model_server"] == "guard"
    assert settings.variants["xstest"].agent.name == "xstest_simple_agent"


def test_words_change_it_and_it_goes_to_standard_output():
    found = run("c.yaml", "guard_model.responses_api_models.vllm_model.model=other")
    assert yaml.safe_load(found.stdout)["models"]["guard"]["name"] == "other"


def test_an_error_is_said_and_nothing_written(tmp_path):
    found = run("c.yaml", "++xstest.resources_servers.xstest.judge_output_formt=x", "-o", "ours.yaml")
    assert found.exit_code == 2
    assert "did you mean 'judge_output_format'" in found.stderr
    assert not (tmp_path / "ours.yaml").exists()
    (tmp_path / "there.yaml").write_text("")
    assert "is there already" in run("c.yaml", "-o", "there.yaml").stderr
