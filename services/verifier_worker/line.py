"""The result line of a scored rollout (platform.md A7).

Owns the order in which row, verdict and identity meet. Invariant: identity and reward win over whatever a row or a
verifier calls its fields, and the line is finite JSON: a non-finite extra becomes null and is named in `_ng_notes`.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

from environments.verdict import Verdict
from schemas import jsontext
from schemas.errors import VerifierError
from schemas.identity import RolloutRef
from schemas.rows import AGENT_REF, ATTEMPT_INDEX, PARAMS, ROLLOUT_ID, ROLLOUT_INDEX, TASK_INDEX

NOTES = "_ng_notes"

JUDGE_CALLS = "_ng_judge_calls"
"""The field that holds the record of a verification's model calls (`judge_calls`). Named here because a process that writes
lines need not import a model client."""

SCORING = "_ng_scoring"
"""The field of a line that a re-verification made: which scoring, by which verifier and version, of what (platform.md C5)."""


def result_line(
    ref: RolloutRef,
    agent: str,
    row: Mapping[str, Any],
    response: bytes,
    verdict: Verdict,
    added: Mapping[str, Any] | None = None,
) -> bytes:
    """One line of the results file, without its line end. `added` are the agent's fields (`Finish.result`).

    Raises `VerifierError` for a reward that is not finite and for fields that JSON cannot hold.
    """
    if not math.isfinite(verdict.reward):  # checked when a verdict is made; a verifier may have changed it since
        raise VerifierError(f"reward must be a finite number, found {verdict.reward!r}", retryable=False)
    try:
        return _line(ref, agent, row, response, verdict, added or {})
    except (TypeError, ValueError) as e:
        raise VerifierError(f"the verdict cannot be written as JSON: {e}", retryable=False) from e


def _line(
    ref: RolloutRef, agent: str, row: Mapping[str, Any], response: bytes, verdict: Verdict, added: Mapping[str, Any]
) -> bytes:
    line: dict[str, Any] = {PARAMS: added.get(PARAMS, row[PARAMS]), "response": jsontext.Fragment(response)}
    line.update((k, v) for k, v in row.items() if k not in _OWN and k not in _OF_ANOTHER)  # a row may be an old line
    line |= _extras(verdict, added)
    line["reward"] = verdict.reward
    if verdict.components is not None:
        line["reward_components"] = dict(verdict.components)
    if verdict.mask_sample:
        line["mask_sample"] = True
    return jsontext.dumps(line | identity(ref, agent, row))


def identity(ref: RolloutRef, agent: str, row: Mapping[str, Any]) -> dict[str, Any]:
    """The fields that say which rollout a line is about."""
    fields: dict[str, Any] = {
        TASK_INDEX: ref.task_index,
        ROLLOUT_INDEX: ref.rollout_index,
        AGENT_REF: row.get(AGENT_REF) or {"type": "responses_api_agents", "name": agent},
    }
    if ref.attempt:
        fields[ATTEMPT_INDEX] = ref.attempt
    if ref.explicit_id:
        fields[ROLLOUT_ID] = ref.explicit_id
    return fields


_OWN = frozenset({PARAMS, "response", "reward", AGENT_REF, TASK_INDEX, ROLLOUT_INDEX, ATTEMPT_INDEX, ROLLOUT_ID})


_OF_ANOTHER = frozenset({JUDGE_CALLS, SCORING})
"""What a verification says about itself: in a row, it belongs to an earlier one."""


def _extras(verdict: Verdict, added: Mapping[str, Any]) -> dict[str, Any]:
    """The agent's fields, the verifier's, and components, as top-level fields; the later win."""
    extras = {k: v for k, v in {**added, **verdict.fields}.items() if k not in _OWN}
    bad = jsontext.non_finite_paths(extras)
    if bad:
        extras = jsontext.loads_lenient(jsontext.dumps(extras))  # a model's words among them may hold lone surrogates
        extras[NOTES] = [*extras.get(NOTES, ()), *(f"{path} was not a finite number and is null here" for path in bad)]
    return extras | dict(verdict.components or {})
