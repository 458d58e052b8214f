"""`config.yaml` of an environment: what it is, what it needs, its variants and the agents that run them."""

from __future__ import annotations

from pathlib import Path
from typing import Any, Literal, Self

import yaml
from pydantic import BaseModel, ConfigDict, Field, model_validator

from environments.hub_data import HubData

_LOADER: Any = getattr(yaml, "CSafeLoader", yaml.SafeLoader)
"""All manifests are read whenever a command starts; in C that takes a tenth of the time."""


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


class Reward(_Strict):
    """Which rewards there are: `range` is the lowest and the highest (platform.md, Neighbouring features)."""

    range: tuple[float, float]
    higher_is_better: bool = True

    @model_validator(mode="after")
    def _ordered(self) -> Self:
        if self.range[0] >= self.range[1]:
            raise ValueError(f"the lowest reward comes first: {self.range}")
        return self


class Manifest(_Strict):
    """An environment's `config.yaml`.

    `needs` names services beyond the model (judge, sandbox) in a word each. `extra` is the extra of the environment's
    distribution that installs what it imports. `determinism`: whether a verification done again gives the same, given the
    same random numbers. `reward` is what `rollstream environment check` holds every reward against.
    """

    name: str
    description: str
    domain: str
    license: str = "Apache-2.0"
    needs: tuple[str, ...] = ()
    extra: str | None = None
    data: HubData | None = None
    determinism: Literal["seeded", "stochastic", "unknown"] = "unknown"
    reward: Reward | None = None
    variants: dict[str, Variant]


def load_manifest(folder: Path) -> Manifest:
    """The manifest in `folder`; raises `pydantic.ValidationError` or `yaml.YAMLError` for a bad one."""
    return Manifest.model_validate(yaml.load((folder / "config.yaml").read_text("utf-8"), _LOADER))  # noqa: S506 - both are safe
