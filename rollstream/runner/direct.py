"""Settings to rollouts in this process, without Kafka: what `serve` and `chat` run on.

Invariant: built from the settings that the workers read, so an environment finds here what it finds there.
"""

from __future__ import annotations

from rollstream.runner.assembly import MODEL_SHARE, clients_of
from rollstream.settings.model import Settings
from services.direct.services import Deadlines, Services
from services.models.named import Endpoints, NamedModels


def services_of(settings: Settings, endpoints: Endpoints, group_size: int | None = None) -> Services:
    """What rollouts run on, not started. `group_size` as in `Services`."""
    s = settings.deadlines
    models = NamedModels(endpoints, budget_s=MODEL_SHARE * s.tool_timeout_s)
    judges = NamedModels(endpoints, budget_s=MODEL_SHARE * s.verify_timeout_s, judges=True)
    deadlines = Deadlines(s.rollout_timeout_s, s.tool_timeout_s, s.verify_timeout_s)
    clients, record = clients_of(settings, models), settings.verifier.record_judge_calls
    return Services(clients, models, judges, deadlines, group_size=group_size, record_judge_calls=record)
