"""Every setting: its name, its type, its bounds, its default and the reason for it.

Owns the shape only; `load` owns where values come from. Invariant: a `Settings` value is complete and within bounds, so
code that holds one never checks a setting again. Times are in seconds, sizes in bytes.
"""

from __future__ import annotations

from enum import StrEnum
from pathlib import Path
from typing import Annotated, Any, Literal

from pydantic import BaseModel, ConfigDict, Field, SecretStr, field_validator, model_validator
from pydantic_settings import BaseSettings, SettingsConfigDict

from environments.own import OwnVariant
from services.models.options import OPTION_NAMES, EngineOptions
from services.runtime.connection import Connection
from services.sandbox.options import Options
from services.sandbox.session_limits import SessionLimits

ENV_PREFIX = "ROLLSTREAM_"
ENV_DELIMITER = "__"

Seconds = Annotated[float, Field(gt=0, le=7 * 86_400)]
"""A week: what waits longer than the prompts topic keeps its records waits for ever."""

InFlight = Annotated[int, Field(ge=1, le=1_000_000)]
Port = Annotated[int, Field(ge=0, le=65_535)]


class DeliveryMode(StrEnum):
    """How often an output may appear: once, or at least once (design §2)."""

    EXACTLY_ONCE = "exactly_once"
    AT_LEAST_ONCE = "at_least_once"


class Section(BaseModel):
    """Base of every section: unknown keys are an error, values do not change."""

    model_config = ConfigDict(extra="forbid", frozen=True, validate_default=True)


class Kafka(Section):
    """How to reach the broker. No `bootstrap_servers` means the local broker."""

    bootstrap_servers: str | None = Field(None, min_length=1, description="HOST:PORT, several by comma")
    security_protocol: Literal["PLAINTEXT", "SSL", "SASL_PLAINTEXT", "SASL_SSL"] = "PLAINTEXT"
    sasl_mechanism: Literal["PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512"] | None = None
    username: str | None = None
    password: SecretStr | None = None
    ca_file: Path | None = Field(None, description="authorities that sign the brokers' certificates (PEM)")
    cert_file: Path | None = Field(None, description="our certificate (PEM), when the broker asks for one")
    key_file: Path | None = Field(None, description="its private key (PEM)")

    @model_validator(mode="after")
    def _is_consistent(self) -> Kafka:
        if self.bootstrap_servers:
            self.connection(self.bootstrap_servers)
        return self

    def connection(self, bootstrap_servers: str) -> Connection:
        """The connection to `bootstrap_servers` with this login; raises `BadConnectionError` (a `ValueError`)."""
        return Connection(
            bootstrap_servers,
            self.security_protocol,
            self.sasl_mechanism,
            self.username,
            self.password.get_secret_value() if self.password else None,
            self.ca_file,
            self.cert_file,
            self.key_file,
        )


class TopicNames(Section):
    """Names and partitions of the topics that are created at start-up."""

    prefix: str = Field("rollstream", pattern=r"^[A-Za-z0-9._-]*$", max_length=100)
    partitions: int = Field(12, ge=1, le=8_192)  # 8,192 is what the task index of a bare row has room for
    replication_factor: int = Field(-1, ge=-1, le=32, description="-1: as the broker is configured")


class Served(Section):
    """Where a model is served, and how patiently it is asked."""

    url: str = Field("scripted", min_length=1, description="base URL such as https://host/v1, several by comma; or scripted")
    name: str = Field("scripted", min_length=1, description="model name sent with each call")
    api_key: SecretStr | None = None
    connect_timeout_s: Seconds = 10.0
    call_timeout_s: Seconds = 600.0  # a long reasoning answer takes minutes; ten is past every engine's default
    max_tries: int = Field(5, ge=1, le=100, description="calls per turn, the first one included")
    concurrency: InFlight = Field(2_048, description="calls at once; lowered by itself at 429 and 503")

    @field_validator("url", mode="before")
    @classmethod
    def _joined(cls, url: Any) -> Any:
        return ",".join(map(str, url)) if isinstance(url, list) else url

    @property
    def urls(self) -> tuple[str, ...]:
        """The base URLs: one, or those of a model's replicas."""
        return tuple(u.strip() for u in self.url.split(",") if u.strip())


class Model(EngineOptions, Served):
    """The policy: an OpenAI-compatible endpoint, or `scripted`, with the options of its engine (docs/models.md)."""

    @property
    def options(self) -> EngineOptions:
        """What the client takes of it."""
        return EngineOptions.model_validate({name: getattr(self, name) for name in self.model_fields_set & {*OPTION_NAMES}})


class OtherModel(Model):
    """A model besides the policy, such as a judge. Nothing but its URL says where it is: it is never `scripted` unasked."""

    url: str = Field(min_length=1, description="base URL such as https://host/v1, or scripted")

    @model_validator(mode="after")
    def _has_a_name(self) -> OtherModel:
        if self.url != "scripted" and "name" not in self.model_fields_set:
            raise ValueError(f"name the model that is served at {self.url}, with `name`")
        return self


ModelKey = Annotated[str, Field(pattern=r"^[a-z][a-z0-9_]*$", max_length=64)]


class Gateway(Section):
    """`rollstream model serve`: the models behind the APIs that agent harnesses speak (docs/models.md)."""

    host: str = "127.0.0.1"
    port: Port = Field(8_080, description="0: any free port")
    api_key: SecretStr | None = Field(None, description="what callers must show; unset: nothing")
    captures: Path | None = Field(None, description="folder for the calls of rollouts; unset: they are not kept")
    in_flight: InFlight = Field(4_096, description="calls at once; further ones are sent away with 503")


class Claims(Section):
    """Where what is too large for a record goes (claim check)."""

    url: str | None = Field(None, min_length=1, description="fsspec URL; unset: a folder of this user's data directory")
    cache_bytes: int = Field(256 << 20, ge=0)

    @property
    def location(self) -> str:
        """The URL, or the folder that stands for it when it is unset."""
        if self.url:
            return self.url
        import platformdirs

        return str(platformdirs.user_data_path("rollstream") / "claims")


class Environments(Section):
    """What environments find on this machine."""

    data_dir: Path | None = Field(None, description="data of environments, a folder each; unset: of this user's data directory")

    @property
    def folder(self) -> Path:
        """The folder that holds a folder for each environment with data that are fetched."""
        if self.data_dir:
            return self.data_dir.expanduser().absolute()
        import platformdirs

        return platformdirs.user_data_path("rollstream") / "environments"


class Agent(Section):
    """Bounds of the agent worker."""

    in_flight: InFlight = 2_048


class Tool(Section):
    """Bounds of the tool worker."""

    in_flight: InFlight = 256


class Verifier(Section):
    """Bounds of the verifier worker."""

    in_flight: InFlight = 256
    processes: int = Field(0, ge=0, le=1_024, description="0: as many as there are processors to use")
    record_judge_calls: bool = Field(True, description="put the calls of judges into the result lines, with their replies")


class Groups(Section):
    """Rollouts that wait in a verifier worker for the others of their task, where an environment scores them together."""

    timeout_s: Seconds = Field(10_800.0, description="from a group's first rollout; longer than a rollout may take")
    incomplete: Literal["score", "fail"] = Field("score", description="what becomes of a group that is not complete by then")
    limit: int = Field(20_000, ge=1, description="groups that wait at once in one worker")
    memory_bytes: int = Field(64 << 20, ge=0)
    disk_bytes: int = Field(4 << 30, ge=0)


class CodeServer(Section):
    """A code-execution server that somebody else runs, for the environments that need one (Lean)."""

    url: str | None = Field(None, pattern=r"^https?://.", description="base URL such as http://127.0.0.1:6000")
    concurrency: InFlight = Field(64, description="requests at once; a Lean compiler takes a core and gigabytes of memory each")


class Sandbox(Section):
    """Where model-written code runs, and how much of it at once (docs/sandbox.md)."""

    backend: Literal["auto", "bwrap", "landlock", "rlimits", "container"] = Field(
        "auto", description="auto never means rlimits"
    )
    slots: int = Field(0, ge=0, le=200, description="programs at once; 0: as many as there are processors")  # user ids: 256
    spare: int = Field(2, ge=0, le=50, description="isolated places kept ready once the first program has run, 10 MB each")
    image: str | None = Field(
        None, min_length=1, description="of the container back end: with Python 3.9 or newer and what programs import"
    )
    engine: str | None = Field(None, min_length=1, description="path of the Docker or Podman API's socket")

    @property
    def options(self) -> Options:
        """What the service takes."""
        return Options(self.backend, self.slots, self.spare, self.image or "", self.engine or "")


class Sessions(Section):
    """Live interpreters of rollouts on a tool worker."""

    # A root worker has 256 user ids for all of its programs.
    limit: int = Field(32, ge=1, le=200, description="at once in one worker; with numpy and pandas 150 MB each")
    idle_s: Seconds = 900.0  # between two tool calls of a slow policy; ended earlier, it would only be rebuilt
    rebuild_s: Seconds = Field(120.0, description="for executing a rollout's earlier calls again on another worker")

    @property
    def bounds(self) -> SessionLimits:
        """What the service takes."""
        return SessionLimits(self.limit, self.idle_s, self.rebuild_s)


class Admission(Section):
    """When new prompts wait: records and rollouts between admission and the score (design §3)."""

    high_water: int = Field(8_192, ge=1)
    low_water: int = Field(4_096, ge=0)

    @model_validator(mode="after")
    def _in_order(self) -> Admission:
        if self.low_water >= self.high_water:
            raise ValueError(f"low_water ({self.low_water}) must be below high_water ({self.high_water})")
        return self


class Deadlines(Section):
    """How long each thing may take."""

    rollout_timeout_s: Seconds = 7_200.0
    tool_timeout_s: Seconds = 300.0
    verify_timeout_s: Seconds = 600.0
    drain_timeout_s: Seconds = 25.0  # under the 30 s that Kubernetes waits between SIGTERM and SIGKILL


class Health(Section):
    """The small HTTP port of a worker. Loopback by default: a container image sets 0.0.0.0."""

    host: str = "127.0.0.1"
    port: Port = Field(0, description="0: any free port")


class Tracing(Section):
    """OpenTelemetry traces of rollouts (docs/observability.md). Nothing is recorded without a URL."""

    url: str | None = Field(None, min_length=1, pattern=r"^https?://", description="of a collector: OTLP over HTTP")
    sample: float = Field(0.01, ge=0, le=1, description="part of the rollouts; each is traced whole or not at all")


class Log(Section):
    """What is logged, and how."""

    level: Literal["debug", "info", "warning", "error"] = "info"
    format: Literal["auto", "text", "json"] = Field("auto", description="auto: text on a terminal, JSON elsewhere")


class Trackers(Section):
    """Where metrics of a run are shown besides its files. A tracker is used when all its names, and W&B's key, are set."""

    wandb_project: str | None = Field(None, min_length=1)
    wandb_name: str | None = Field(None, min_length=1, description="of the run there")
    wandb_api_key: SecretStr | None = None
    mlflow_tracking_uri: str | None = Field(None, min_length=1, description="a server's URL, or a folder")
    mlflow_experiment_name: str | None = Field(None, min_length=1)
    mlflow_run_name: str | None = Field(None, min_length=1)
    mlflow_tracking_token: SecretStr | None = None
    upload_rollouts: bool = Field(True, description="send results too, without trajectories and raw payloads")
    timeout_s: Seconds = Field(300.0, description="for all that one tracker is sent, at the end of a run")

    @model_validator(mode="before")
    @classmethod
    def _older_name(cls, value: object) -> object:
        old = "upload_rollouts_to_wandb"
        if isinstance(value, dict) and old in value:
            return {"upload_rollouts": value[old], **{k: v for k, v in value.items() if k != old}}
        return value


class Broker(Section):
    """The local broker's data.

    What it runs on (Java, Kafka's jars, the cache) is named by variables of its own, which `rollstream broker --help`
    lists: they belong to the machine, not to a pipeline.
    """

    data_dir: Path | None = Field(None, description="unset: a folder of this user's data directory")


class Settings(BaseSettings):
    """All settings of a process. Build it with `rollstream.settings.load`, which knows files and says where values came from.

    `Settings()` reads environment variables (`ROLLSTREAM_KAFKA__BOOTSTRAP_SERVERS`) and defaults alone.
    """

    model_config = SettingsConfigDict(
        env_prefix=ENV_PREFIX,
        env_nested_delimiter=ENV_DELIMITER,
        extra="forbid",
        frozen=True,
        validate_default=True,
    )

    kafka: Kafka = Kafka()
    topics: TopicNames = TopicNames()
    delivery: DeliveryMode = DeliveryMode.EXACTLY_ONCE
    scored_format: Literal["json", "avro"] = "json"
    model: Model = Model()
    models: dict[ModelKey, OtherModel] = Field(default_factory=dict, description="others by name, judges for example")
    variants: dict[str, OwnVariant] = Field(default_factory=dict, description="of environments, beside the shipped ones")
    gateway: Gateway = Gateway()
    claims: Claims = Claims()
    environments: Environments = Environments()
    agent: Agent = Agent()
    tool: Tool = Tool()
    verifier: Verifier = Verifier()
    groups: Groups = Groups()
    code_server: CodeServer = CodeServer()
    sandbox: Sandbox = Sandbox()
    sessions: Sessions = Sessions()
    admission: Admission = Admission()
    deadlines: Deadlines = Deadlines()
    health: Health = Health()
    tracing: Tracing = Tracing()
    log: Log = Log()
    trackers: Trackers = Trackers()
    broker: Broker = Broker()

    @model_validator(mode="after")
    def _policy_is_model(self) -> Settings:
        if "policy" in self.models:
            raise ValueError("models.policy: the policy's settings are under `model`")
        return self
