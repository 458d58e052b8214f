"""Blocks of model servers as our models (platform.md D1, D3).

Owns which implementation is which engine here and what its keys are called. Invariant: a key is translated, known to mean
nothing here, or reported.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from pydantic import ValidationError

from environments.words import near_word, nearest
from rollstream.nemo_gym.blocks import SERVING, TYPO, Block
from rollstream.nemo_gym.errors import Level
from rollstream.settings.model import OtherModel
from services.models.options import OPTION_NAMES

_OPENAI = {
    "openai_base_url": "url",
    "openai_api_key": "api_key",
    "openai_model": "name",
    "openai_default_headers": "default_headers",
    "max_concurrent_requests": "concurrency",
}
_CHAT = {"base_url": "url", "api_key": "api_key", "model": "name", "num_concurrent_requests": "concurrency"}

_ENGINES: dict[str, tuple[str, Mapping[str, str]]] = {
    "openai_model": ("responses", _OPENAI),
    "azure_openai_model": ("azure", _OPENAI),
    "inference_provider": ("chat", _CHAT),
    "litellm_model": ("chat", _CHAT),
    "vllm_model": ("vllm", _CHAT),
    "genrm_model": ("genrm", _CHAT),
}
"""The engine of an implementation, and what its keys are called here; those of the engine's options keep their names."""

_NO_ENGINE = "rollstream starts no engine: start vLLM yourself and describe it as a vllm_model with its base_url"

_ELSEWHERE = {
    "local_vllm_model": _NO_ENGINE,
    "local_vllm_model_proxy": _NO_ENGINE,
    "dummy_model": "a stand-in of the reference: nothing is asked",
}

_OPTIONS = frozenset(OPTION_NAMES) - {"engine"}
_COMPLETIONS = "use_completions_api"

Said = Iterator[tuple[Level, str, str]]


def kinds() -> list[str]:
    """The implementations that are understood."""
    return sorted(_ENGINES)


def model_of(block: Block) -> tuple[dict[str, Any], list[tuple[Level, str, str]]]:
    """Settings of a model (fields of `Model`), and what is said about keys: (level, key, text)."""
    if block.implementation not in _ENGINES:
        why = _ELSEWHERE.get(block.implementation)
        text = why or f"there is no model server {block.implementation!r}{nearest(block.implementation, _ENGINES)}"
        return {}, [(Level.NOTE if block.implementation == "dummy_model" else Level.ERROR, "", text)]
    engine, names = _ENGINES[block.implementation]
    known = {k: v for k, v in block.values.items() if k in names or k in _OPTIONS or k == _COMPLETIONS}
    said = list(_strangers(block, {*names, *_OPTIONS, _COMPLETIONS}))
    if known.pop(_COMPLETIONS, False):
        engine = "completions"
    values = {names.get(k, k): v for k, v in known.items() if v is not None}
    values |= {"engine": engine} if engine != "responses" else {}
    return values, [*said, *_wrong(block, values, {ours: theirs for theirs, ours in names.items()})]


def _strangers(block: Block, known: set[str]) -> Said:
    for key in block.values:
        if key in known or key in SERVING:
            continue
        near = near_word(key, known, TYPO)
        if near:
            yield Level.ERROR, key, f"{block.implementation} has no such option; did you mean {near!r}?"
        else:
            yield Level.IGNORED, key, f"{block.implementation} has no such option here"


def _wrong(block: Block, values: dict[str, Any], theirs: Mapping[str, str]) -> Said:
    """What our settings refuse, by the names that the block has for it."""
    try:
        OtherModel.model_validate(values)
    except ValidationError as e:
        for error in e.errors(include_url=False, include_input=False, include_context=False):
            place = [str(p) for p in error["loc"]]
            key = ".".join([theirs.get(place[0], place[0]), *place[1:]]) if place else ""
            missing = f"a {block.implementation} needs it"
            yield Level.ERROR, key, missing if error["type"] == "missing" else error["msg"].removeprefix("Value error, ")
