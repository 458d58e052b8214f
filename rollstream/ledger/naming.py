"""What a rollout in flight is called: the environment's name, from what its prompt says.

Ended rollouts carry the name; one in flight has only its prompt's word, which may be an environment, a variant or an
agent. Invariant: both get the same name, or the table would show one environment in two lines.
"""

from __future__ import annotations

from functools import cache

from environments.registry import Registry
from schemas.errors import DataError


class Names:
    """Names by the registry, which is read the first time one is asked for."""

    def __init__(self) -> None:
        self._registry: Registry | None = None
        self._agents: dict[str, str] = {}
        self.name = cache(self._find)

    def _find(self, environment: str, agent: str) -> str:
        """The variant that a prompt means; what it says itself when nobody here knows it."""
        if self._registry is None:
            self._registry = Registry.load()
            variants = [(v, block) for e in self._registry.entries for v, block in e.manifest.variants.items()]
            self._agents = {block.agent.name: v for v, block in variants}
        if not environment:
            return self._agents.get(agent, agent)
        try:
            return self._registry.variant_of(environment)
        except DataError:
            return environment
