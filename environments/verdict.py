"""The result of scoring one rollout."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

from schemas.errors import VerifierError


class Verdict:
    """A reward and the fields that the result line carries beside it (platform.md A7).

    `components` are the named parts of a reward; they also become top-level numbers. `mask_sample` keeps the sample out
    of the loss. Raises `VerifierError` when the reward or a component is not a finite number: such a row is a failure,
    never a reward of 0. A non-finite field becomes null where the line is written.
    """

    __slots__ = ("components", "fields", "mask_sample", "reward")

    def __init__(
        self,
        reward: object,
        *,
        components: Mapping[str, Any] | None = None,
        mask_sample: bool = False,
        **fields: Any,
    ) -> None:
        for name, value in {"reward": reward, **(components or {})}.items():
            if not isinstance(value, int | float) or not math.isfinite(value):
                raise VerifierError(f"{name} must be a finite number, found {value!r}", retryable=False)
        self.reward = float(reward)  # type: ignore[arg-type]  # checked above
        self.components = components
        self.mask_sample = mask_sample
        self.fields = fields

    def __repr__(self) -> str:
        return f"Verdict({self.reward}, components={self.components}, mask_sample={self.mask_sample}, **{self.fields})"
