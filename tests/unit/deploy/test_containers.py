"""The image and compose files, as far as they can be checked without a container engine."""

import os
import re
import shutil
import subprocess
from pathlib import Path

import pytest
import yaml

from rollstream.settings.model import ENV_DELIMITER, ENV_PREFIX, Settings
from schemas import topics

DEPLOY = Path(__file__).parents[3] / "deploy"
COMPOSE = yaml.safe_load((DEPLOY / "compose.yaml").read_text())
SERVICES = COMPOSE["services"]
WORKERS = ["agent", "tool", "verifier", "sink"]
IMAGE = (DEPLOY / "Containerfile").read_text()
EXAMPLE = dict(
    line.lstrip("# ").split("=", 1)
    for line in (DEPLOY / ".env.example").read_text().splitlines()
    if re.match(r"(# )?[A-Z_]+=", line)
)


def interpolated(value, env):
    """Compose's `${NAME:-default}` and `${NAME:?message}`."""

    def one(match):
        name, operator, word = match.groups()
        if env.get(name):
            return env[name]
        assert operator != ":?", f"{name} has to be set: {word}"
        return word or ""

    return re.sub(r"\$\{(\w+)(?:(:-|:\?)([^}]*))?\}", one, str(value))


def environment(service, env):
    found = {
        key: env.get(key) if value is None else interpolated(value, env)
        for key, value in SERVICES[service]["environment"].items()
    }
    return {key: value for key, value in found.items() if value is not None}


def is_setting(variable):
    """Whether a variable names a field of the settings, by sections."""
    model = Settings
    for part in variable.removeprefix(ENV_PREFIX).lower().split(ENV_DELIMITER):
        field = getattr(model, "model_fields", {}).get(part)
        if field is None:
            return False
        model = field.annotation
    return not hasattr(model, "model_fields")


def variables():
    texts = [
        IMAGE,
        (DEPLOY / "compose.yaml").read_text(),
        (DEPLOY / ".env.example").read_text(),
        (DEPLOY / "README.md").read_text(),
    ]
    return sorted(set(re.findall(rf"{ENV_PREFIX}\w+", "\n".join(texts))))


@pytest.mark.parametrize("variable", variables())
def test_every_variable_is_a_setting_of_the_program(variable):
    assert is_setting(variable)


def test_a_variable_that_is_no_setting_would_be_found():
    assert not is_setting("ROLLSTREAM_MODEL__ULR")
    assert not is_setting("ROLLSTREAM_MODEL")


@pytest.mark.parametrize("service", WORKERS)
@pytest.mark.parametrize(
    "env", [EXAMPLE, {"ROLLSTREAM_MODEL__URL": "http://m/v1", "ROLLSTREAM_MODEL__NAME": "m"}], ids=["example", "least"]
)
def test_the_values_are_settings_the_program_takes(service, env, monkeypatch):
    for name in [n for n in os.environ if n.startswith(ENV_PREFIX)]:
        monkeypatch.delenv(name)
    for name, value in environment(service, env).items():
        monkeypatch.setenv(name, value)
    settings = Settings()
    assert settings.kafka.bootstrap_servers == "kafka:19092"
    if service == "agent":
        assert settings.model.name == env["ROLLSTREAM_MODEL__NAME"]


def test_every_variable_of_the_example_is_used():
    text = (DEPLOY / "compose.yaml").read_text()
    assert [name for name in EXAMPLE if f"{name}" not in text] == []


def test_the_four_workers_are_one_image_with_a_command_each():
    assert set(SERVICES) == {"kafka", *WORKERS}
    for name in WORKERS:
        assert SERVICES[name]["image"] == SERVICES["agent"]["image"]
        assert SERVICES[name]["command"][:2] == ["worker", name]
        assert (DEPLOY / SERVICES[name]["build"]["context"] / SERVICES[name]["build"]["dockerfile"]).samefile(
            DEPLOY / "Containerfile"
        )


@pytest.mark.parametrize("name", WORKERS)
def test_a_worker_can_be_scaled(name):
    """A fixed name or a published port can be had once only."""
    assert not {"container_name", "ports", "hostname"} & set(SERVICES[name])


def test_images_are_pinned():
    images = [s["image"] for s in SERVICES.values()] + re.findall(r"^FROM (\S+)", IMAGE, re.MULTILINE)
    for image in images:
        assert re.search(r":\d+\.\d+", image), image
    assert re.search(r"UV_VERSION=\d+\.\d+\.\d+", IMAGE)


@pytest.mark.parametrize("name", SERVICES)
def test_everything_has_a_health_check_and_time_to_stop(name):
    assert SERVICES[name]["healthcheck"]["test"][0] == "CMD"
    drain = Settings.model_fields["deadlines"].default.drain_timeout_s
    assert int(SERVICES[name]["stop_grace_period"].removesuffix("s")) > drain


def test_workers_wait_for_a_healthy_kafka_and_share_the_claims():
    for name in WORKERS:
        assert SERVICES[name]["depends_on"]["kafka"]["condition"] == "service_healthy"
        assert "claims:/var/lib/rollstream/claims" in SERVICES[name]["volumes"]
    assert {v.split(":")[0] for s in SERVICES.values() for v in s["volumes"]} == set(COMPOSE["volumes"])


def test_the_sink_writes_a_directory_that_many_can_share():
    assert SERVICES["sink"]["command"][-1].endswith("/")
    assert SERVICES["sink"]["command"][-1].rstrip("/") in {v.split(":")[1] for v in SERVICES["sink"]["volumes"]}


def test_kafka_takes_the_largest_record():
    assert int(SERVICES["kafka"]["environment"]["KAFKA_MESSAGE_MAX_BYTES"]) >= max(t.max_message_bytes for t in topics.ALL)


def test_kafkas_port_is_for_this_machine_only():
    assert all(p.startswith("127.0.0.1:") for p in SERVICES["kafka"]["ports"])


def test_the_image_runs_as_nobody_in_particular_and_can_be_asked_for_its_health():
    final = IMAGE.split("FROM ")[-1]
    assert re.search(r"^USER 10001$", final, re.MULTILINE)
    assert final.index("USER") < final.index("ENTRYPOINT")
    assert re.search(r'^ENTRYPOINT \["rollstream"\]$', final, re.MULTILINE)
    assert re.search(r"HEALTHCHECK.*\n.*/ready", final)
    assert f":{SETTING_PORT}/ready" in final


SETTING_PORT = re.search(r"ROLLSTREAM_HEALTH__PORT=(\d+)", IMAGE)[1]


@pytest.mark.parametrize("name", WORKERS)
def test_the_health_check_asks_the_port_the_image_sets(name):
    assert f":{SETTING_PORT}/ready" in SERVICES[name]["healthcheck"]["test"][-1]


def test_what_the_image_copies_exists_and_reaches_the_engine():
    ignore = (DEPLOY / "Containerfile.dockerignore").read_text().splitlines()
    for line in re.findall(r"^COPY (?!--from)(.+)$", IMAGE, re.MULTILINE):
        for source in line.split()[:-1]:
            assert (DEPLOY.parent / source).exists(), source
            assert f"!{source}" in ignore


def has_compose():
    docker = shutil.which("docker")
    return (
        docker and subprocess.run([docker, "compose", "version"], capture_output=True, timeout=20, check=False).returncode == 0
    )


@pytest.mark.skipif(not has_compose(), reason="the docker client has no compose plugin here")
def test_compose_itself_accepts_the_file():
    env = {
        "PATH": os.environ["PATH"],
        "HOME": os.environ.get("HOME", "/"),
        "ROLLSTREAM_MODEL__URL": "http://m/v1",
        "ROLLSTREAM_MODEL__NAME": "m",
    }
    subprocess.run(["docker", "compose", "-f", DEPLOY / "compose.yaml", "config", "-q"], env=env, check=True, timeout=30)
