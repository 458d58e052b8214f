from pathlib import Path

import pytest
from pydantic import SecretStr

from rollstream.settings import DeliveryMode, SettingsError, load
from rollstream.settings.load import leaves, variable
from rollstream.settings.mask import MASK, masked
from rollstream.settings.model import Settings


@pytest.fixture(autouse=True)
def _clean(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    import os

    for name in [n for n in os.environ if n.upper().startswith("ROLLSTREAM_")]:
        monkeypatch.delenv(name)
    monkeypatch.chdir(tmp_path)


def test_defaults_stand_alone_and_say_so() -> None:
    loaded = load()
    assert loaded.settings.agent.in_flight == 2048
    assert loaded.settings.delivery is DeliveryMode.EXACTLY_ONCE
    assert set(loaded.origins.values()) == {"default"}
    assert set(loaded.origins) == {k for k, _ in leaves(loaded.settings)}


def test_flags_win_over_environment_over_file_over_defaults(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    (tmp_path / "rollstream.toml").write_text("[model]\nname = 'file'\nurl = 'http://file/v1'\n[agent]\nin_flight = 7\n")
    monkeypatch.setenv("ROLLSTREAM_MODEL__NAME", "env")
    monkeypatch.setenv("ROLLSTREAM_MODEL__URL", "http://env/v1")
    loaded = load({"model.url": "http://flag/v1", "agent.in_flight": None})
    model = loaded.settings.model
    assert (model.url, model.name, loaded.settings.agent.in_flight) == ("http://flag/v1", "env", 7)
    assert loaded.settings.tool.in_flight == 256
    assert loaded.origins["model.url"] == "flag"
    assert loaded.origins["model.name"] == "environment ROLLSTREAM_MODEL__NAME"
    assert loaded.origins["agent.in_flight"] == "file rollstream.toml"
    assert loaded.origins["tool.in_flight"] == "default"


def test_a_named_yaml_file_is_read_and_the_default_one_is_not(tmp_path: Path) -> None:
    (tmp_path / "rollstream.toml").write_text("scored_format = 'avro'\n")
    (tmp_path / "other.yaml").write_text("topics: {prefix: mine}\n")
    loaded = load(config=tmp_path / "other.yaml")
    assert loaded.settings.topics.prefix == "mine"
    assert loaded.settings.scored_format == "json"


def test_the_file_can_be_named_by_a_variable(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    (tmp_path / "other.toml").write_text("topics.prefix = 'mine'\n")
    monkeypatch.setenv("ROLLSTREAM_CONFIG", str(tmp_path / "other.toml"))
    assert load().settings.topics.prefix == "mine"


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("[agent]\nin_fligth = 3\n", "agent.in_fligth: unknown setting; did you mean agent.in_flight? (file rollstream.toml)"),
        ("[modle]\nurl = 'x'\n", "modle: unknown setting; did you mean model? (file rollstream.toml)"),
        ("[agent]\nin_flight = 0\n", "agent.in_flight: Input should be greater than or equal to 1 (file rollstream.toml)"),
        (
            "[admission]\nlow_water = 9000\n",
            "admission: low_water (9000) must be below high_water (8192) (file rollstream.toml)",
        ),
        ("delivery = 'twice'\n", "delivery: Input should be 'exactly_once' or 'at_least_once' (file rollstream.toml)"),
        (
            "kafka = {bootstrap_servers = 'h:1', security_protocol = 'SASL_SSL'}\n",
            "kafka: sasl_mechanism is None; it must be one of",
        ),
        ("[kafka]\nbootstrap_servers = 'nohost'\n", "kafka: bootstrap_servers has 'nohost'; write host:port"),
        ("[deadlines]\ntool_timeout_s = -1\n", "deadlines.tool_timeout_s: Input should be greater than 0"),
    ],
)
def test_a_wrong_setting_is_named_with_its_place(tmp_path: Path, text: str, expected: str) -> None:
    (tmp_path / "rollstream.toml").write_text(text)
    with pytest.raises(SettingsError) as e:
        load()
    assert str(e.value).startswith(expected)


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        (
            "ROLLSTREAM_KAFKA__BOOTSTRAP_SERVER",
            "kafka.bootstrap_server: unknown setting; did you mean kafka.bootstrap_servers?",
        ),
        ("ROLLSTREAM_KAFKA_BOOTSTRAP_SERVERS", "did you mean ROLLSTREAM_KAFKA__BOOTSTRAP_SERVERS?"),
        ("ROLLSTREAM_MODLE__URL", "did you mean ROLLSTREAM_MODEL__URL?"),
    ],
)
def test_a_misspelt_variable_is_an_error(monkeypatch: pytest.MonkeyPatch, name: str, expected: str) -> None:
    monkeypatch.setenv(name, "x")
    with pytest.raises(SettingsError) as e:
        load()
    assert expected in str(e.value)


@pytest.mark.parametrize(
    "name", ["ROLLSTREAM_AGENT_SERVICE_HOST", "ROLLSTREAM_VERIFIER_PORT_8080_TCP_ADDR", "ROLLSTREAM_BROKER_DIR"]
)
def test_variables_of_others_are_left_alone(monkeypatch: pytest.MonkeyPatch, name: str) -> None:
    monkeypatch.setenv(name, "10.0.0.1")
    load()


def test_a_file_that_is_missing_or_broken_is_named(tmp_path: Path) -> None:
    with pytest.raises(SettingsError, match=r"nowhere\.toml: there is no such file \(named by --config\)"):
        load(config="nowhere.toml")
    (tmp_path / "rollstream.toml").write_text("[kafka\n")
    with pytest.raises(SettingsError, match=r"^rollstream\.toml: .*line 1"):
        load()


def test_every_setting_can_be_set_by_its_variable(monkeypatch: pytest.MonkeyPatch) -> None:
    for key, value in leaves(Settings()):
        if isinstance(value, int | float) and not isinstance(value, bool):
            monkeypatch.setenv(variable(key), str(value))
    loaded = load()
    assert loaded.settings == load().settings
    assert loaded.origins["agent.in_flight"] == "environment ROLLSTREAM_AGENT__IN_FLIGHT"


def test_secrets_are_masked_by_type_by_name_and_in_urls(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("ROLLSTREAM_MODEL__API_KEY", "hunter2")
    key = load().settings.model.api_key
    assert key is not None
    assert key.get_secret_value() == "hunter2"
    assert "hunter2" not in repr(load().settings)
    assert masked("model.api_key", key) == MASK
    assert masked("anything", SecretStr("x")) == MASK
    assert masked("some.session_token", "x") == MASK
    assert masked("model.api_key", None) is None
    assert masked("model.url", "https://me:hunter2@host/v1?api_key=hunter2&a=b") == f"https://{MASK}@host/v1?api_key={MASK}&a=b"
    assert masked("agent.in_flight", 3) == 3


def test_other_models_are_named_by_their_sections_and_variables(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    (tmp_path / "rollstream.toml").write_text("[models.judge]\nurl = 'http://file/v1'\nname = 'a'\nconcurrency = 8\n")
    monkeypatch.setenv("ROLLSTREAM_MODELS__JUDGE__URL", "http://env/v1")
    monkeypatch.setenv("ROLLSTREAM_MODELS__JUDGE__API_KEY", "hunter2")
    loaded = load({"models.genrm.url": "scripted"})
    judge = loaded.settings.models["judge"]
    assert (judge.url, judge.name, judge.concurrency, judge.max_tries) == ("http://env/v1", "a", 8, 5)
    assert loaded.settings.models["genrm"].name == "scripted"
    assert loaded.origins["models.judge.url"] == "environment ROLLSTREAM_MODELS__JUDGE__URL"
    assert loaded.origins["models.judge.concurrency"] == "file rollstream.toml"
    assert loaded.origins["models.genrm.url"] == "flag"
    shown = {key: masked(key, value) for key, value in leaves(loaded.settings)}
    assert shown["models.judge.api_key"] == MASK
    assert "hunter2" not in str(shown)


@pytest.mark.parametrize(
    ("flags", "expected"),
    [
        ({"models.judge.name": "a"}, "models.judge.url: Field required"),
        ({"models.judge.url": "http://h/v1"}, "models.judge: name the model that is served at http://h/v1, with `name`"),
        ({"models.judge.url": "scripted", "models.judge.nmae": "x"}, "models.judge.nmae: unknown setting"),
        ({"models.policy.url": "scripted"}, "models.policy: the policy's settings are under `model`"),
    ],
)
def test_a_wrong_model_is_named(flags: dict[str, str], expected: str) -> None:
    with pytest.raises(SettingsError) as e:
        load(flags)
    assert expected in str(e.value)


def test_options_of_an_engine_from_files_flags_and_the_environment(tmp_path, monkeypatch):
    """platform.md D3's names, free objects by their fields, secrets among them masked by type."""
    file = tmp_path / "s.toml"
    file.write_text('[model]\nurl = ["http://a/v1", "http://b/v1"]\nname = "m"\nengine = "vllm"\nextra_body = {seed = 7}\n')
    monkeypatch.setenv("ROLLSTREAM_MODEL__CHAT_TEMPLATE_KWARGS", '{"enable_thinking": false}')
    loaded = load({"model.default_headers": '{"X-Key": "hunter2"}'}, file)
    shown = dict(leaves(loaded.settings))
    assert shown["model.extra_body.seed"] == 7
    assert loaded.settings.model.urls == ("http://a/v1", "http://b/v1")
    assert loaded.settings.model.chat_template_kwargs == {"enable_thinking": False}
    assert "hunter2" not in str(shown["model.default_headers.X-Key"])
    with pytest.raises(SettingsError, match="no use for audio_root"):
        load({"model.audio_root": "x", "model.engine": "chat"})
