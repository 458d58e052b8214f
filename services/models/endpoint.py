"""Where a model is served, and how patiently it is asked.

Owns the configuration of one endpoint. Invariant: every wait of a call has a bound here, and secrets are kept in
`SecretStr`, so that no representation of an endpoint shows them.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated
from urllib.parse import SplitResult, unquote, urlsplit

from pydantic import BaseModel, ConfigDict, Field, SecretStr, field_validator, model_validator

from services.models.options import Engine, EngineOptions

Seconds = Annotated[float, Field(gt=0, allow_inf_nan=False)]

API_ROOT = "/v1/"
"""Every OpenAI-compatible server puts its API under this; what follows it in `URL/NAME` is the model's name."""


class Timeouts(BaseModel):
    """Bounds of one call, in seconds.

    `connect_s`: until the connection stands; a burst of 16,000 connections overruns a listen queue, and the kernel asks
    again after 1, 3 and 7 s. `first_byte_s`: from then on until the head of the reply, which servers send when the
    text is complete, so this bounds the generation of one try. `body_s`: from the head to the last byte.
    `call_s`: the whole call, with its queueing and its retries.
    """

    model_config = ConfigDict(frozen=True, extra="forbid")

    connect_s: Seconds = 10.0
    first_byte_s: Seconds = 600.0
    body_s: Seconds = 60.0
    call_s: Seconds = 1800.0


class RetryBudget(BaseModel):
    """How often and how long one call is tried again.

    `max_attempts` counts tries, the first included. `max_elapsed_s` runs from the call's first failure, or from its
    beginning when it only ever waited at an open breaker. Back-off n is uniform in [0, min(cap_s, base_s · 2ⁿ)]
    ("full jitter"); a server's Retry-After is honoured up to `retry_after_cap_s`.
    """

    model_config = ConfigDict(frozen=True, extra="forbid")

    max_attempts: Annotated[int, Field(ge=1, le=1000)] = 8
    max_elapsed_s: Seconds = 600.0
    base_s: Seconds = 0.5
    cap_s: Seconds = 30.0
    retry_after_cap_s: Seconds = 120.0


class BreakerSettings(BaseModel):
    """When an unreachable endpoint is left alone.

    `failures` connection-level failures in a row open the breaker for `cool_down_s`, doubled after each failed probe up
    to `max_cool_down_s`.
    """

    model_config = ConfigDict(frozen=True, extra="forbid")

    failures: Annotated[int, Field(ge=1)] = 10
    cool_down_s: Seconds = 1.0
    max_cool_down_s: Seconds = 30.0


class ModelEndpoint(BaseModel):
    """One model behind one OpenAI-compatible server.

    `base_url` ends before `/responses`; `name` is what goes into the request's `model`. `headers` are sent with every
    request and treated as secrets. `max_concurrency` bounds the tries in flight of one process; the limiter stays at or
    below it. `max_reply_bytes` bounds what one reply may occupy: 128k generated tokens with ids and log-probabilities
    are about 4 MB, routed experts multiply that. `idle_alarm_s`: say so in the log when nothing has been answered for
    this long while calls wait. `replicas` are further base URLs of the same model; a session keeps to one of them
    (`replicas.ReplicatedClient`). `options` say how its engine is spoken to.
    """

    model_config = ConfigDict(frozen=True, extra="forbid", hide_input_in_errors=True)

    base_url: str
    name: Annotated[str, Field(min_length=1)]
    api_key: SecretStr | None = None
    headers: Mapping[str, SecretStr] = Field(default_factory=dict)
    replicas: tuple[str, ...] = ()
    options: EngineOptions = EngineOptions()
    timeouts: Timeouts = Timeouts()
    retries: RetryBudget = RetryBudget()
    breaker: BreakerSettings = BreakerSettings()
    max_concurrency: Annotated[int, Field(ge=1, le=100_000)] = 16_384
    max_reply_bytes: Annotated[int, Field(ge=1024)] = 64 * 1024 * 1024
    idle_alarm_s: Seconds = 120.0

    @field_validator("base_url")
    @classmethod
    def _check_url(cls, url: str) -> str:
        return _checked_url(url)

    @field_validator("replicas")
    @classmethod
    def _check_replicas(cls, urls: tuple[str, ...]) -> tuple[str, ...]:
        return tuple(map(_checked_url, urls))

    @field_validator("options")
    @classmethod
    def _check_options(cls, options: EngineOptions) -> EngineOptions:
        cls._check_headers(options.default_headers)
        return options

    @model_validator(mode="after")
    def _azure_knows_its_version(self) -> ModelEndpoint:
        options = self.options
        if options.engine is Engine.AZURE and not self.base_url.endswith("/v1") and "api-version" not in options.default_query:
            raise ValueError("Azure OpenAI needs default_query with its `api-version`, such as 2025-04-01-preview")
        return self

    @field_validator("headers")
    @classmethod
    def _check_headers(cls, headers: Mapping[str, SecretStr]) -> Mapping[str, SecretStr]:
        for name, value in headers.items():
            if not _is_header(name, value.get_secret_value()):
                raise ValueError(f"header {name!r} has a character that HTTP does not allow in its name or value")
        return headers

    @field_validator("api_key")
    @classmethod
    def _check_key(cls, key: SecretStr | None) -> SecretStr | None:
        if key is not None and not _is_header("authorization", key.get_secret_value()):
            raise ValueError("the api_key has a character that HTTP does not allow (a line break at its end?)")
        return key

    @property
    def responses_url(self) -> str:
        """Where Responses are created."""
        return f"{self.base_url}/responses"

    def request_headers(self) -> dict[str, str]:
        """Headers of every request, secrets in clear: for the wire only."""
        given = {**self.options.default_headers, **self.headers}
        own = {name: value.get_secret_value() for name, value in given.items()}
        if self.api_key is None or not {"authorization", "api-key"}.isdisjoint(n.lower() for n in own):
            return own
        key = self.api_key.get_secret_value()
        return own | ({"api-key": key} if self.options.engine is Engine.AZURE else {"Authorization": f"Bearer {key}"})

    @classmethod
    def parse(cls, text: str, api_key: str | None = None) -> ModelEndpoint:
        """The endpoint in `URL/NAME`, as given on a command line.

        The URL ends with the first `/v1` of its path; all that follows is the model's name, slashes included:
        `http://localhost:8000/v1/org/model-7b` is model `org/model-7b` at `http://localhost:8000/v1`. Percent-escapes in
        the name are decoded. Raises `ValueError` that says what is missing.
        """
        parts = urlsplit(text.strip())
        _check_form(parts, text)
        root, _, name = parts.path.partition(API_ROOT)
        base = f"{parts.scheme}://{parts.netloc}{root}{API_ROOT.rstrip('/')}"
        return cls(base_url=base, name=unquote(name), api_key=SecretStr(api_key) if api_key else None)


def _checked_url(url: str) -> str:
    parts = urlsplit(url)
    if parts.scheme not in {"http", "https"} or not parts.hostname:
        raise ValueError("a model's URL must look like http://host:port/v1")
    if parts.username or parts.password:
        raise ValueError("a model's URL must not contain a user or password; give the key as api_key or a header")
    if parts.query or parts.fragment:
        raise ValueError("a model's URL must not have a query or fragment")
    return url.rstrip("/")


def _check_form(parts: SplitResult, text: str) -> None:
    if "@" in parts.netloc:
        raise ValueError("a model's URL must not contain a user or password; give the key separately")
    if not parts.scheme or API_ROOT not in parts.path or parts.path.endswith(API_ROOT):
        raise ValueError(f"{text!r} does not name a model: expected URL/NAME such as http://localhost:8000/v1/my-model")
    if parts.query or parts.fragment:
        raise ValueError(f"{text!r} has a query or fragment; write ? and # in a model's name as %3F and %23")


def _is_header(name: str, value: str) -> bool:
    printable = all(c == "\t" or " " <= c != "\x7f" for c in value)
    return bool(name) and name.isascii() and not set(name) & set('()<>@,;:\\"/[]?={} \t\r\n') and printable
