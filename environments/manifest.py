"""`config.yaml` of an environment: what it is, what it needs, its variants and the agents that run them."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import yaml
from pydantic import BaseModel, ConfigDict, Field


class _Strict(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True)


class AgentBlock(_Strict):
    """The agent of a variant: the name rows use in `agent_ref`, which agent it is, and its settings."""

    name: str
    type: str = "simple_agent"
    config: dict[str, Any] = Field(default_factory=dict)


class Variant(_Strict):
    """A named configuration of an environment."""

    agent: AgentBlock
    config: dict[str, Any] = Field(default_factory=dict)


class Manifest(_Strict):
    """An environment's `config.yaml`. `needs` names services beyond the model (judge, sandbox) in a word each."""

    name: str
    description: str
    domain: str
    license: str = "Apache-2.0"
    needs: tuple[str, ...] = ()
    extra: str | None = None
    variants: dict[str, Variant]


def load_manifest(folder: Path) -> Manifest:
    """The manifest in `folder`; raises `pydantic.ValidationError` or `yaml.YAMLError` for a bad one."""
    return Manifest.model_validate(yaml.safe_load((folder / "config.yaml").read_text("utf-8")))
