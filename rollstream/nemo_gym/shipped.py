"""The files that the reference ships, by their names there, made from our manifests and the engines we speak to.

Owns which names there are. Invariant: a block made here, unchanged, means the shipped variant itself.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from typing import Any

from environments.discovery import Entry
from environments.manifest import Manifest, Variant

Tree = dict[str, Any]

_SERVER = re.compile(r"resources_servers/([^/]+)/configs/([^/]+)\.ya?ml")
_FOLDER = re.compile(r"(?:environments|benchmarks)/([^/]+)/(?:config|configs/[^/]+)\.ya?ml")
_MODEL = re.compile(r"responses_api_models/([^/]+)/configs/([^/]+)\.ya?ml")

_OPENAI: Tree = {
    "openai_base_url": "${policy_base_url}",
    "openai_api_key": "${policy_api_key}",
    "openai_model": "${policy_model_name}",
}
_CHAT: Tree = {"base_url": "${policy_base_url}", "api_key": "${policy_api_key}", "model": "${policy_model_name}"}
_AZURE: Tree = {**_OPENAI, "max_concurrent_requests": 8, "default_query": {"api-version": "???"}}
_TRAINING: Tree = {**_CHAT, "return_token_id_information": True, "uses_reasoning_parser": True}

MODELS: dict[tuple[str, str], Tree] = {
    ("openai_model", "openai_model"): _OPENAI,
    ("azure_openai_model", "azure_openai_model"): _AZURE,
    ("inference_provider", "inference_provider"): _CHAT,
    ("litellm_model", "litellm_model"): _CHAT,
    ("vllm_model", "vllm_model"): {**_CHAT, "uses_reasoning_parser": True},
    ("vllm_model", "vllm_model_for_training"): _TRAINING,
}
"""Values of the policy's block by (implementation, file)."""

DOMAINS = (
    "math",
    "coding",
    "agent",
    "knowledge",
    "instruction_following",
    "long_context",
    "safety",
    "games",
    "translation",
    "e2e",
    "rlhf",
    "other",
)
"""The reference's closed list (platform.md E4)."""


class Shipped:
    """The shipped files over the environments that are installed."""

    def __init__(self, entries: Sequence[Entry]) -> None:
        self._manifests = {e.manifest.name: e.manifest for e in entries}

    def __call__(self, path: str) -> Tree | None:
        """The values of the file called `path`, or None when it is none of ours."""
        if found := _MODEL.fullmatch(path):
            values = MODELS.get((found[1], found[2]))
            return None if values is None else _model_block(found[1], values)
        if found := _SERVER.fullmatch(path):
            return self._blocks(found[1], found[2])
        if found := _FOLDER.fullmatch(path):
            return self._blocks(found[1], found[1])
        return None

    def known(self) -> list[str]:
        """The names of all files, by the reference's older layout and the newer one."""
        names = [f"responses_api_models/{kind}/configs/{stem}.yaml" for kind, stem in MODELS]
        for manifest in self._manifests.values():
            stems = sorted({manifest.name, *manifest.variants})
            names += [f"resources_servers/{manifest.name}/configs/{stem}.yaml" for stem in stems]
            names.append(f"environments/{manifest.name}/config.yaml")
        return names

    def _blocks(self, environment: str, stem: str) -> Tree | None:
        manifest = self._manifests.get(environment) or self._with_variant(environment)
        variants = dict(_chosen(manifest, stem)) if manifest else {}
        if manifest is None or not variants:
            return None
        blocks: Tree = {}
        for name, variant in variants.items():
            blocks |= _pair(manifest, name, variant)
        return blocks

    def _with_variant(self, name: str) -> Manifest | None:
        """Benchmarks of the reference are variants here, named alike."""
        return next((m for m in self._manifests.values() if name in m.variants), None)


def _chosen(manifest: Manifest, stem: str) -> Iterator[tuple[str, Variant]]:
    """A variant by its name, all by the environment's, or those of an agent by the agent's kind."""
    if stem != manifest.name and stem in manifest.variants:
        yield stem, manifest.variants[stem]
        return
    for name, variant in manifest.variants.items():
        if stem in (manifest.name, variant.agent.type):
            yield name, variant


def _pair(manifest: Manifest, name: str, variant: Variant) -> Tree:
    domain = manifest.domain if manifest.domain in DOMAINS else "other"
    server = {"entrypoint": "app.py", "domain": domain, "description": manifest.description, **variant.config}
    agent = {
        "entrypoint": "app.py",
        "resources_server": {"type": "resources_servers", "name": name},
        "model_server": {"type": "responses_api_models", "name": "policy_model"},
        **variant.agent.config,
    }
    return {
        name: {"resources_servers": {manifest.name: server}},
        variant.agent.name: {"responses_api_agents": {variant.agent.type: agent}},
    }


def _model_block(kind: str, values: Tree) -> Tree:
    return {"policy_model": {"responses_api_models": {kind: {"entrypoint": "app.py", **values}}}}
