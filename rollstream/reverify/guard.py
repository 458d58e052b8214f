"""Who scores again, and whether that is safe (platform.md C3).

Invariant: nothing but a verifier that says it is `stateless` passes by itself. What an `unsupported` one lacks may be at hand:
the siblings of a rollout that is scored in a group, which is then scored as a whole, and, in the log, the state that the
rollout ended with (C5).
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from functools import cache

from environments.environment import Environment, Reverify
from environments.registry import Registry
from schemas import jsontext
from schemas.identity import Place

UNSAFE = "unsafe_"
"""Prefix of what was made with `force` (C3)."""


class ReverifyError(Exception):
    """A re-verification cannot begin or go on; the message says what to do. Nothing was written when it is raised at first."""


@dataclass(frozen=True, slots=True)
class Verifier:
    """A variant of an environment, as it scores now."""

    variant: str
    name: str
    version: str
    environment: Environment

    @classmethod
    def of(cls, registry: Registry, variant: str) -> Verifier:
        """The verifier of a variant; raises `DataError` when there is none."""
        environment = registry.binding(variant, None).environment
        return cls(variant, registry.entry_of(variant).manifest.name, environment.version, environment)

    @property
    def stamp(self) -> Stamp:
        return Stamp(self.variant, self.name, self.version)


@dataclass(frozen=True, slots=True)
class Stamp:
    """What a re-scored line says of its scoring (C5)."""

    variant: str
    name: str
    version: str

    def fields(self, scoring: str, run_id: str, source: str | Place) -> dict[str, str]:
        """The value of `_ng_scoring`. `source` is where the stored rollout lies: topic/partition/offset, or file:line."""
        own = {"id": scoring, "verifier": self.name, "version": self.version, "environment": self.variant}
        return {**own, "run_id": run_id, "source": str(source)}

    def fragment(self, scoring: str, run_id: str, file: str, number: int) -> jsontext.Fragment:
        """`fields` as JSON, for a line of a file: all of it but the number is made once."""
        return jsontext.Fragment(b'%b%d"}' % (_beginning(self, scoring, run_id, file), number))


@cache
def _beginning(stamp: Stamp, scoring: str, run_id: str, file: str) -> bytes:
    return jsontext.dumps(stamp.fields(scoring, run_id, f"{file}:")).removesuffix(b'"}')


def objection(environment: Environment, *, with_state: bool) -> str:
    """Why stored rollouts cannot be scored by `environment` again; empty when they can.

    `with_state`: the state with which each rollout ended is at hand.
    """
    mode, has_state = environment.reverify, environment.State is not None
    if mode is Reverify.STATELESS:
        return ""
    if mode is Reverify.UNKNOWN:
        return "it does not say whether it can"
    if has_state and with_state:
        return ""
    if not has_state and environment.scoring == "group":
        return ""
    return "a rollout's state is not in the files, only in the log (--log)" if has_state else "it needs the live session"


def check(verifiers: Iterable[Verifier], *, with_state: bool, force: bool) -> bool:
    """Whether all of it is safe. Raises `ReverifyError` that names those that are not, unless `force`."""
    found = [(v, why) for v in verifiers if (why := objection(v.environment, with_state=with_state))]
    if found and not force:
        said = "; ".join(f"{v.variant} (mode {v.environment.reverify}: {why})" for v, why in found)
        raise ReverifyError(
            f"cannot be re-verified: {said}. --force does it all the same, into a name that begins with {UNSAFE}"
        )
    return not found
