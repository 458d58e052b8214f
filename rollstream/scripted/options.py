"""How the scripted server behaves when it behaves."""

from __future__ import annotations

import math
from statistics import NormalDist
from typing import Annotated, Literal, Self

from pydantic import BaseModel, ConfigDict, Field

Seconds = Annotated[float, Field(ge=0, allow_inf_nan=False)]

_NORMAL = NormalDist()
_EDGE = 1e-6
"""Draws are kept this far from 0 and 1, where exponential and normal quantiles are infinite."""


class Latency(BaseModel):
    """How long a reply takes, in seconds.

    `fixed`: always `seconds`. `uniform`: between `seconds` and `spread`. `exponential`: with mean `seconds`. `lognormal`:
    with median `seconds` and sigma `spread`.
    """

    model_config = ConfigDict(frozen=True, extra="forbid")

    kind: Literal["fixed", "uniform", "exponential", "lognormal"] = "fixed"
    seconds: Seconds = 0.0
    spread: Seconds = 0.0

    @classmethod
    def parse(cls, text: str) -> Self:
        """`0.5`, `uniform:0.1:0.5`, `exponential:2` or `lognormal:2:0.7`. Raises `ValueError`."""
        head, *rest = text.split(":")
        if not rest:
            return cls(seconds=float(head))
        kind, numbers = head, [float(n) for n in rest]
        return cls.model_validate({"kind": kind, **dict(zip(("seconds", "spread"), numbers, strict=False))})

    def draw(self, u: float) -> float:
        """The quantile at `u` in [0, 1)."""
        if self.kind == "fixed":
            return self.seconds
        if self.kind == "uniform":
            return self.seconds + (self.spread - self.seconds) * u
        u = min(max(u, _EDGE), 1 - _EDGE)
        if self.kind == "exponential":
            return -self.seconds * math.log(1 - u)
        return self.seconds * math.exp(self.spread * _NORMAL.inv_cdf(u))


class Options(BaseModel):
    """What the script does, alike for every request.

    `slow_fraction` of the requests, chosen by their hash, take `slow_factor` times as long. `pad_bytes` is filler in the
    final message, `turn_bytes` filler in each turn that calls tools. `tool_turns`: turns with tool calls before the final
    message; None means one per tool that the request offers. `vary_by_key`: let the idempotency key into the hash, so
    that rollouts of one task differ. `seed` changes every choice. In chat completions, `reasoning` puts a thought into the
    text or beside it, and `token_fields` puts the three fields of platform.md A4 on the message.
    """

    model_config = ConfigDict(frozen=True, extra="forbid")

    latency: Latency = Latency()
    slow_fraction: Annotated[float, Field(ge=0, le=1)] = 0.0
    slow_factor: Annotated[float, Field(ge=1, le=1e6)] = 100.0
    pad_bytes: Annotated[int, Field(ge=0, le=1 << 28)] = 0
    turn_bytes: Annotated[int, Field(ge=0, le=1 << 28)] = 0
    tool_turns: Annotated[int, Field(ge=0, le=10_000)] | None = None
    vary_by_key: bool = False
    reasoning: Literal["", "inline", "separate"] = ""
    token_fields: bool = False
    seed: int = 0

    def delay(self, digest: bytes) -> float:
        """Seconds before the reply to the request with this digest (16 bytes or more)."""
        base = self.latency.draw(int.from_bytes(digest[:6]) / 2**48)
        slow = self.slow_fraction and int.from_bytes(digest[6:12]) / 2**48 < self.slow_fraction
        return base * self.slow_factor if slow else base
