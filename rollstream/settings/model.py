"""Every setting: its name, its type, its bounds, its default and the reason for it.

Owns the shape only; `load` owns where values come from. Invariant: a `Settings` value is complete and within bounds, so
code that holds one never checks a setting again. Times are in seconds, sizes in bytes.
"""

from __future__ import annotations

from enum import StrEnum
from typing import Annotated, Literal

from pydantic import BaseModel, ConfigDict, Field, SecretStr, model_validator
from pydantic_settings import BaseSettings, SettingsConfigDict

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
    sasl_username: str | None = None
    sasl_password: SecretStr | None = None
    ssl_cafile: str | None = Field(None, description="authority that signed the broker's certificate (PEM)")
    ssl_certfile: str | None = Field(None, description="our certificate (PEM), when the broker asks for one")
    ssl_keyfile: str | None = None
    ssl_keyfile_password: SecretStr | None = None

    @model_validator(mode="after")
    def _sasl_is_whole(self) -> Kafka:
        if self.security_protocol.startswith("SASL") and not (
            self.sasl_mechanism and self.sasl_username and self.sasl_password
        ):
            raise ValueError(f"{self.security_protocol} needs sasl_mechanism, sasl_username and sasl_password")
        if self.sasl_mechanism and not self.security_protocol.startswith("SASL"):
            raise ValueError(f"sasl_mechanism needs security_protocol SASL_PLAINTEXT or SASL_SSL, not {self.security_protocol}")
        return self


class TopicNames(Section):
    """Names and partitions of the topics that are created at start-up."""

    prefix: str = Field("rollstream", pattern=r"^[A-Za-z0-9._-]*$", max_length=100)
    partitions: int = Field(12, ge=1, le=8_192)  # 8,192 is what the task index of a bare row has room for
    replication_factor: int = Field(-1, ge=-1, le=32, description="-1: as the broker is configured")


class Model(Section):
    """The policy: an OpenAI-compatible endpoint, or `scripted`."""

    url: str = Field("scripted", min_length=1, description="base URL such as https://host/v1, or scripted")
    name: str = Field("scripted", min_length=1, description="model name sent with each call")
    api_key: SecretStr | None = None
    connect_timeout_s: Seconds = 10.0
    call_timeout_s: Seconds = 600.0  # a long reasoning answer takes minutes; ten is past every engine's default
    max_tries: int = Field(5, ge=1, le=100, description="calls per turn, the first one included")
    concurrency: InFlight = Field(2_048, description="calls at once; lowered by itself at 429 and 503")


class Claims(Section):
    """Where what is too large for a record goes (claim check)."""

    url: str | None = Field(None, min_length=1, description="fsspec URL; unset: a folder of this user's data directory")
    cache_bytes: int = Field(256 << 20, ge=0)


class Agent(Section):
    """Bounds of the agent worker."""

    in_flight: InFlight = 2_048


class Tool(Section):
    """Bounds of the tool worker."""

    in_flight: InFlight = 256


class Verifier(Section):
    """Bounds of the verifier worker."""

    in_flight: InFlight = 256
    processes: int = Field(0, ge=0, le=256, description="for verifiers that hold the interpreter; 0: one per core")


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


class Log(Section):
    """What is logged, and how."""

    level: Literal["debug", "info", "warning", "error"] = "info"
    format: Literal["auto", "text", "json"] = Field("auto", description="auto: text on a terminal, JSON elsewhere")


class Broker(Section):
    """The local broker: where it keeps its data, and what it runs on when not on the packages we fetch."""

    data_dir: str | None = Field(None, min_length=1, description="unset: .rollstream/kafka in the working directory")
    kafka_home: str | None = Field(None, min_length=1, description="an unpacked Apache Kafka instead of the fetched one")
    java: str | None = Field(None, min_length=1, description="a java executable instead of the packaged one")


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
    claims: Claims = Claims()
    agent: Agent = Agent()
    tool: Tool = Tool()
    verifier: Verifier = Verifier()
    admission: Admission = Admission()
    deadlines: Deadlines = Deadlines()
    health: Health = Health()
    log: Log = Log()
    broker: Broker = Broker()
