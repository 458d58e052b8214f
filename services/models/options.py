"""How an engine wants to be spoken to (platform.md D1, D3).

Owns the options besides where the engine is and how patiently it is asked. Names are those of the reference's model
servers, so that a server block can be read key by key. Invariant: an option that an engine has no use for is refused where
it is set, not ignored.
"""

from __future__ import annotations

from enum import StrEnum
from pathlib import Path
from typing import Any, Literal

from pydantic import BaseModel, ConfigDict, Field, SecretStr, field_validator, model_validator

from schemas import jsontext


class Engine(StrEnum):
    """The API an endpoint speaks.

    `responses`: OpenAI Responses, passed through. `chat`: any OpenAI-compatible Chat Completions. `azure`: the same at Azure
    OpenAI. `vllm`: vLLM and engines like it, with everything of D3. `completions`: plain text completions. `genrm`: a
    pairwise reward model behind Chat Completions.
    """

    RESPONSES = "responses"
    CHAT = "chat"
    AZURE = "azure"
    VLLM = "vllm"
    COMPLETIONS = "completions"
    GENRM = "genrm"


_CHATTING = frozenset({Engine.CHAT, Engine.AZURE, Engine.VLLM, Engine.GENRM})
_SERVED = frozenset({Engine.VLLM, Engine.COMPLETIONS, Engine.GENRM})
_EVERY = frozenset(Engine)

_TAKEN_BY: dict[str, frozenset[Engine]] = {
    "extra_body": _EVERY,
    "default_headers": _EVERY,
    "default_query": _EVERY,
    "sampling_overrides": _EVERY,
    "drop_input_reasoning_items": frozenset({Engine.RESPONSES}),
    "uses_reasoning_parser": _CHATTING | {Engine.COMPLETIONS},
    "uses_interleaved_reasoning": _CHATTING,
    "preserve_reasoning_in_assistant_content": _CHATTING,
    "replace_developer_role_with_system": _CHATTING,
    "sequential_reasoning_allowed": _CHATTING,
    "chat_template_kwargs": _SERVED | {Engine.CHAT},
    "return_token_id_information": _SERVED | {Engine.CHAT},
    "request_prompt_and_generation_token_ids": _SERVED | {Engine.CHAT},
    "send_required_prefix": _SERVED | {Engine.CHAT},
    "on_prefix_mismatch": _SERVED | {Engine.CHAT},
    "tokenizer": _SERVED | {Engine.CHAT},
    "audio_root": frozenset({Engine.VLLM}),
    "is_responses_native": frozenset({Engine.VLLM}),
    "render_chat_template": frozenset({Engine.COMPLETIONS}),
    "supports_principle": frozenset({Engine.GENRM}),
}
"""Who has a use for what."""


class EngineOptions(BaseModel):
    """The options of one endpoint's engine; the defaults are the reference's.

    `sampling_overrides` win over whatever a request says and are sent even when it says nothing: a trainer pins its sampling
    with them. `tokenizer`: a folder with `tokenizer.json` (and a chat template), for `render_chat_template` and for the
    prompt's token ids where the engine tells neither them nor how it tokenizes. `send_required_prefix`: send the tokens seen
    so far as `required_prefix_token_ids`; `on_prefix_mismatch`: what follows when a prompt does not extend them (D9).
    `supports_principle`: whether a reward model's template knows the role.
    """

    model_config = ConfigDict(frozen=True, extra="forbid")

    engine: Engine = Engine.RESPONSES
    extra_body: dict[str, Any] = Field(default_factory=dict)
    default_headers: dict[str, SecretStr] = Field(default_factory=dict)
    default_query: dict[str, str] = Field(default_factory=dict)
    sampling_overrides: dict[str, Any] = Field(default_factory=dict)
    drop_input_reasoning_items: bool = False
    uses_reasoning_parser: bool = False
    uses_interleaved_reasoning: bool = True
    preserve_reasoning_in_assistant_content: bool = False
    replace_developer_role_with_system: bool = False
    sequential_reasoning_allowed: bool = True
    chat_template_kwargs: dict[str, Any] = Field(default_factory=dict)
    return_token_id_information: bool = False
    request_prompt_and_generation_token_ids: bool = False
    send_required_prefix: bool = False
    on_prefix_mismatch: Literal["segment", "error"] = "segment"
    tokenizer: Path | None = None
    audio_root: Path | None = None
    is_responses_native: bool = False
    render_chat_template: bool = False
    supports_principle: bool = True

    @field_validator(
        "extra_body", "default_headers", "default_query", "sampling_overrides", "chat_template_kwargs", mode="before"
    )
    @classmethod
    def _from_json(cls, value: Any) -> Any:
        """A flag or an environment variable has room for a text only: JSON."""
        return jsontext.loads(value) if isinstance(value, str) else value

    @field_validator("default_query", mode="after")
    @classmethod
    def _short(cls, query: dict[str, str]) -> dict[str, str]:
        for name, value in query.items():
            if any(not c.isprintable() for c in name + value):
                raise ValueError(f"default_query.{name} has a character that a URL does not allow")
        return query

    @model_validator(mode="after")
    def _fits_the_engine(self) -> EngineOptions:
        strangers = [
            n
            for n in self.model_fields_set
            if self.engine not in _TAKEN_BY.get(n, _EVERY) and getattr(self, n) != default_of(n)
        ]
        if strangers:
            name = min(strangers)
            takers = ", ".join(sorted(e.value for e in _TAKEN_BY[name]))
            raise ValueError(f"engine {self.engine.value!r} has no use for {name}; it belongs to: {takers}")
        if self.render_chat_template and self.tokenizer is None:
            raise ValueError("render_chat_template needs the tokenizer whose template it is: set `tokenizer` to its folder")
        return self

    @property
    def is_plain(self) -> bool:
        """Whether a Responses request goes out exactly as it is."""
        return self.engine is Engine.RESPONSES and not (
            self.extra_body or self.sampling_overrides or self.drop_input_reasoning_items
        )


def default_of(name: str) -> Any:
    """The default of an option."""
    return EngineOptions.model_fields[name].get_default(call_default_factory=True)


OPTION_NAMES = tuple(EngineOptions.model_fields)
