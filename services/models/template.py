"""A tokenizer's own chat template, applied on our side (platform.md D3).

Reads a folder as Hugging Face writes it: `tokenizer.json`, `tokenizer_config.json`, `chat_template.jinja`. Needs the extra
`tokenizer` (tokenizers and jinja2; the transformers package takes seconds to import and is not needed). Invariant: templates
run in jinja's sandbox, because they come with the model.
"""

from __future__ import annotations

import json
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, NoReturn

from environments.extras import OURS, install_command
from schemas import jsontext
from schemas.errors import DataError, InfrastructureError

_SPECIAL = ("bos_token", "eos_token", "pad_token", "unk_token")


class ChatTemplate:
    """A tokenizer, with its chat template where it has one."""

    def __init__(self, tokenizer: Any, template: Any, special: Mapping[str, str]) -> None:
        self._tokenizer = tokenizer
        self._template = template
        self._special = special

    @classmethod
    def load(cls, folder: Path) -> ChatTemplate:
        """Read the folder. Blocking. Raises `InfrastructureError` that says what is missing."""
        try:
            from tokenizers import Tokenizer
        except ImportError as e:
            command = install_command(OURS, "tokenizer")
            raise InfrastructureError(
                f"a tokenizer is named, but the packages to read it are not installed: {command}", retryable=False
            ) from e
        file = folder / "tokenizer.json"
        if not file.is_file():
            raise InfrastructureError(f"{folder}: there is no tokenizer.json in it", retryable=False)
        config = _json(folder / "tokenizer_config.json")
        special = {name: _token_text(config[name]) for name in _SPECIAL if config.get(name) is not None}
        source = _template_source(folder, config)
        return cls(Tokenizer.from_file(str(file)), _compiled(source) if source else None, special)

    @property
    def has_template(self) -> bool:
        """Whether it can render a conversation."""
        return self._template is not None

    def render(self, messages: Sequence[Mapping[str, Any]], tools: Any = None, kwargs: Mapping[str, Any] | None = None) -> str:
        """The prompt for chat messages. Raises `DataError` for what the template refuses."""
        if self._template is None:
            raise DataError("the tokenizer has no chat template")
        names = {**self._special, "add_generation_prompt": True, **(kwargs or {})}
        try:
            return str(self._template.render(messages=_plain(messages), tools=tools, documents=None, **names))
        except Exception as e:
            raise DataError(f"the chat template refuses the conversation: {type(e).__name__}: {str(e)[:200]}") from e

    def encode(self, text: str) -> list[int]:
        """The ids of a rendered prompt, whose special tokens the template has written already."""
        return list(self._tokenizer.encode(jsontext.without_surrogates(text), add_special_tokens=False).ids)

    def ids(self, sent: Mapping[str, Any]) -> list[int]:
        """The ids of the prompt of a request: of its rendered messages, or of its text as engines tokenize one."""
        prompt = sent.get("prompt")
        if isinstance(prompt, str):
            special = bool(sent.get("add_special_tokens", True))
            return list(self._tokenizer.encode(jsontext.without_surrogates(prompt), add_special_tokens=special).ids)
        return self.encode(self.render(sent["messages"], sent.get("tools"), sent.get("chat_template_kwargs")))


def _plain(messages: Sequence[Mapping[str, Any]]) -> list[dict[str, Any]]:
    """Messages as engines hand them to templates of text models: a list of text parts is one text, and none is empty."""
    return [{**m, "content": _joined(m.get("content"))} for m in messages]


def _joined(content: Any) -> Any:
    if content is None:
        return ""
    if isinstance(content, list) and all(p.get("type") == "text" for p in content):
        return "".join(p["text"] for p in content)
    return content


def _json(path: Path) -> dict[str, Any]:
    if not path.is_file():
        return {}
    try:
        value = jsontext.loads(path.read_bytes())
    except (OSError, ValueError) as e:
        raise InfrastructureError(f"{path}: {e}", retryable=False) from e
    return value if isinstance(value, dict) else {}


def _template_source(folder: Path, config: Mapping[str, Any]) -> str | None:
    file = folder / "chat_template.jinja"
    if file.is_file():
        return file.read_text("utf-8")
    source = config.get("chat_template")
    if isinstance(source, list):  # several by name; the first named `default` is the one for conversations
        named = {t.get("name"): t.get("template") for t in source if isinstance(t, Mapping)}
        source = named.get("default")
    return source if isinstance(source, str) else None


def _token_text(value: Any) -> str:
    return str(value.get("content", "")) if isinstance(value, Mapping) else str(value)


def _compiled(source: str) -> Any:
    from jinja2 import TemplateError
    from jinja2.sandbox import ImmutableSandboxedEnvironment

    # Templates are written for these two; loop controls are what some use besides.
    environment = ImmutableSandboxedEnvironment(trim_blocks=True, lstrip_blocks=True, extensions=["jinja2.ext.loopcontrols"])
    environment.filters["tojson"] = _tojson
    environment.globals["raise_exception"] = _refuse
    environment.globals["strftime_now"] = time.strftime
    try:
        return environment.from_string(source)
    except TemplateError as e:
        raise InfrastructureError(f"the tokenizer's chat template cannot be read: {e}", retryable=False) from e


def _tojson(value: Any, indent: int | None = None, ensure_ascii: bool = False) -> str:
    """JSON without HTML escapes: jinja's own filter writes for web pages."""
    return json.dumps(value, ensure_ascii=ensure_ascii, indent=indent)


def _refuse(message: str) -> NoReturn:
    raise ValueError(message)
