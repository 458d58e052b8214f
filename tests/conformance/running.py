"""Running one case of an environment through every form that its keys ask for."""

from __future__ import annotations

import time
from collections.abc import Mapping
from typing import Any

from environments.context import Context
from environments.environment import Environment
from environments.registry import Registry, make_environment
from environments.testing import EnvironmentHarness
from environments.verdict import Verdict
from schemas.errors import RolloutError
from tests.conformance.cases import Case
from tests.conformance.forms.all_forms import FORMS
from tests.conformance.forms.form import Outcome, Played

REGISTRY = Registry.load()
VARIANTS = {"aviary_gsm8k": "gsm8k_aviary", "aviary_hotpotqa": "hotpotqa_aviary"}
"""Subjects of cases that have another name than the variant they are about."""

_KNOWN = frozenset().union(*(f.keys for f in FORMS))


def exists(subject: str) -> bool:
    """Whether the project has the environment."""
    subject = VARIANTS.get(subject, subject)
    return any(e.manifest.name == subject or subject in e.manifest.variants for e in REGISTRY.entries)


def obstacle(case: Case) -> str | None:
    """Why the case cannot run, or None."""
    unknown = sorted(case.data.keys() - _KNOWN)
    if unknown:
        return f"no form for {', '.join(unknown)}"
    return next((why for why in (f.obstacle(case) for f in FORMS) if why), None)


class TimedHarness(EnvironmentHarness):
    """Notes the CPU seconds of each verification in `spent`: of this process, without programs in the sandbox."""

    def __init__(self, environment: Environment, spent: list[float], *, context: Context) -> None:
        super().__init__(environment, context=context)
        self.spent = spent

    def verify(self, response: Mapping[str, Any]) -> Verdict:
        started = time.process_time()
        verdict = super().verify(response)
        self.spent.append(time.process_time() - started)
        return verdict

    def whole(self, case: Case) -> Outcome | None:
        """What a form makes of the whole case (groups); None when none does."""
        started = time.process_time()
        found = next((o for o in (f.outcome(case, self) for f in FORMS) if o), None)
        if found is not None:
            self.spent.append(time.process_time() - started)
        return found


def run(case: Case, spent: list[float] | None = None) -> list[str]:
    """What differs from the case. `spent` takes the CPU seconds of each of its verifications."""
    context = Context(rollout_id="0-0")
    for form in FORMS:
        context = form.context(case, context)
    harness = TimedHarness(_environment(case), [] if spent is None else spent, context=context)
    found: list[str] = []
    outcome = _outcome(case, harness, found)
    return found + [line for form in FORMS for line in form.check(case, harness, outcome)]


def _outcome(case: Case, harness: TimedHarness, found: list[str]) -> Outcome:
    try:
        whole = harness.whole(case)
        if whole is not None:
            return whole
        harness.seed(case.data["task"])
        for form in FORMS:
            found += form.play(case, harness)
        if not case.expected:
            return Outcome({})
        played = next((p for p in (f.response(case, harness) for f in FORMS) if p), None)
        played = played or Played(case.data["response"], {})
        verdict = harness.verify(played.response)
    except RolloutError as e:
        return Outcome({}, e)
    return Outcome(_line(case, played, verdict))


def _line(case: Case, played: Played, verdict: Verdict) -> dict[str, Any]:
    scores: Mapping[str, Any] = {"reward": verdict.reward, "mask_sample": verdict.mask_sample, **(verdict.components or {})}
    parts = {"reward_components": verdict.components} if verdict.components else {}
    return {**case.data["task"], "response": played.response, **played.fields, **scores, **parts, **verdict.fields}


def _environment(case: Case) -> Environment:
    name = REGISTRY.variant_of(case.data.get("variant") or VARIANTS.get(case.subject, case.subject))
    entry = REGISTRY.entry_of(name)
    variant = entry.manifest.variants[name]
    config = {**variant.config, **(case.data.get("config") or {})}
    return make_environment(entry, variant.model_copy(update={"config": config}))
