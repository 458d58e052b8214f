"""What the checks of an environment found."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from enum import StrEnum

from schemas.errors import InfrastructureError


class Result(StrEnum):
    """How a check ended. `skipped`: it does not apply, or something it needs is not there."""

    PASSED = "passed"
    FAILED = "failed"
    SKIPPED = "skipped"


@dataclass(frozen=True, slots=True)
class Finding:
    """One check, how it ended, and what there is to say: on a failure, what is wrong and where."""

    check: str
    result: Result
    detail: str = ""


class Problem(Exception):
    """A check failed; the text says what is wrong and where."""


class Skip(Exception):
    """A check does not apply here; the text says why."""


@dataclass(slots=True)
class Findings:
    """The findings about one environment, in the order of the checks."""

    environment: str
    found: list[Finding] = field(default_factory=list)

    def __iter__(self) -> Iterator[Finding]:
        return iter(self.found)

    @property
    def failed(self) -> bool:
        """Whether any check failed."""
        return any(f.result is Result.FAILED for f in self.found)

    def skip(self, checks: Iterable[str], why: str) -> None:
        """Note checks that cannot be made."""
        self.found += [Finding(check, Result.SKIPPED, why) for check in checks]

    @contextmanager
    def check(self, name: str) -> Iterator[list[str]]:
        """Make the check called `name`: it fails by what it raises. Yields a list for what to say when it passes.

        What a service that is not there raises (`InfrastructureError`) skips the check: it says nothing about the environment.
        """
        said: list[str] = []
        try:
            yield said
        except Skip as e:
            self._note(name, Result.SKIPPED, str(e))
        except InfrastructureError as e:
            self._note(name, Result.SKIPPED, f"not checked here: {e}")
        except Problem as e:
            self._note(name, Result.FAILED, str(e))
        except Exception as e:  # noqa: BLE001 - an environment may raise anything; it is what was found
            self._note(name, Result.FAILED, f"{type(e).__name__}: {e}")
        else:
            self._note(name, Result.PASSED, "; ".join(said))

    def _note(self, name: str, result: Result, detail: str) -> None:
        self.found.append(Finding(name, result, detail))
