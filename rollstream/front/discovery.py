"""How clients of the reference find environments and agents: the head server's two routes (platform.md G4, I1, I5).

Invariant: what is told is what is served here and now, and no secret is in it.
"""

from __future__ import annotations

import os
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import yaml

from rollstream.front.served import Served
from rollstream.settings.mask import masked
from rollstream.settings.model import Settings

AGENTS, ENVIRONMENTS = "responses_api_agents", "resources_servers"


@dataclass(frozen=True, slots=True)
class Address:
    """Where something listens."""

    host: str
    port: int

    @property
    def url(self) -> str:
        return f"http://{f'[{self.host}]' if ':' in self.host else self.host}:{self.port}"


@dataclass(frozen=True, slots=True)
class Directory:
    """What is served where: `head` is where this is asked, `places` has an address for each environment's name."""

    served: Sequence[Served]
    settings: Settings
    head: Address
    places: Mapping[str, Address]
    started: float

    def config_yaml(self) -> str:
        """The configuration as the reference's clients read it: blocks by name, each with its host and port."""
        found: dict[str, Any] = {"head_server": _at(self.head)}
        model = self.settings.model
        urls = [masked("url", url) for url in model.urls]
        found["policy_base_url"] = urls[0] if len(urls) == 1 else urls
        found["policy_model_name"] = model.name
        if model.api_key is not None:
            found["policy_api_key"] = masked("api_key", model.api_key)
        for one in self.served:
            found |= self._blocks(one)
        return yaml.safe_dump(found, sort_keys=False, allow_unicode=True)

    def _blocks(self, one: Served) -> dict[str, Any]:
        manifest = one.entry.manifest
        block = manifest.variants[one.name]
        place = _at(self.places[one.name])
        environment = {"entrypoint": one.entry.package, "domain": manifest.domain, **place}
        environment |= {k: masked(k, v) for k, v in block.config.items() if k not in environment}
        agent = {
            "entrypoint": one.entry.package,
            **place,
            "resources_server": {"type": ENVIRONMENTS, "name": one.name},
            "model_server": {"type": "responses_api_models", "name": "policy_model"},
        }
        return {
            one.name: {ENVIRONMENTS: {manifest.name: environment}},
            block.agent.name: {AGENTS: {block.agent.type.rpartition(":")[2]: agent}},
        }

    def instances(self) -> list[dict[str, Any]]:
        """A line for each server of the reference's shape (G4); all are this process."""
        uptime = round(time.monotonic() - self.started, 3)
        found = []
        for one in self.served:
            place = self.places[one.name]
            common = {**_at(place), "url": place.url, "entrypoint": one.entry.package, "pid": os.getpid()}
            for kind, name in ((ENVIRONMENTS, one.name), (AGENTS, one.binding.agent_name)):
                head = {"process_name": name, "server_type": kind, "name": name}
                found.append({**head, **common, "uptime_seconds": uptime, "status": "success"})
        return found


def _at(address: Address) -> dict[str, Any]:
    return {"host": address.host, "port": address.port}
