"""What rollouts in one process run on: side threads, clients, models.

Owns their start and their end. Invariant: environment code gets here what it gets on the workers: the same stand-ins, the same
threads and processes, the same deadlines; a judge that fails in a verification is a `JudgeError`, in a tool a `ModelError`.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace

from services.direct.gathering import Gathering
from services.models.named import NamedModels
from services.runtime.clients import Clients
from services.runtime.offload import Offload
from services.verifier_worker.verifying import Verifying


@dataclass(frozen=True, slots=True)
class Deadlines:
    """In seconds: a whole rollout, one call of environment code, one verification."""

    rollout_s: float = 7_200.0
    tool_s: float = 300.0
    verify_s: float = 600.0


@dataclass(slots=True)
class Services:
    """`clients` must hold `models`; `judges` are the same models, as verifiers call them. Start on the loop that uses it.

    `group_size`: rollouts that are scored together where an environment does that; without it, as many as it says itself.
    """

    clients: Clients
    models: NamedModels
    judges: NamedModels
    deadlines: Deadlines = field(default_factory=Deadlines)
    offload: Offload = field(default_factory=lambda: Offload("direct"))
    group_size: int | None = None
    record_judge_calls: bool = True
    verifying: Verifying = field(init=False)
    gathering: Gathering = field(init=False)

    def __post_init__(self) -> None:
        # Shares the bridge and every other client; only the models differ.
        self._verifiers = replace(self.clients, models=self.judges, owned=[self.judges])
        self.verifying = Verifying(self.offload, self._verifiers, self.deadlines.verify_s, self.record_judge_calls)
        self.gathering = Gathering(self.verifying, self.group_size, self.deadlines.rollout_s)

    _verifiers: Clients = field(init=False)

    async def start(self) -> None:
        """Start everything; the running loop becomes theirs."""
        await self.clients.start()
        await self._verifiers.start()
        await self.offload.start()

    async def close(self) -> None:
        """Stop everything, the last first; calls under way fail."""
        await self.offload.close()
        await self._verifiers.close()
        await self.clients.close()
