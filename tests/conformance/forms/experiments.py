"""`rng_seed`, `evaluation_error_is_null`, `reference_error_text`, `seed_http_status`: the extra keys of newton_bench.

`rng_seed`: the seed of NumPy's generator just before scoring, which environments draw from the context's random numbers.
"""

from __future__ import annotations

import random
from dataclasses import replace

from environments.context import Context
from environments.testing import EnvironmentHarness
from schemas.errors import DataError
from tests.conformance.cases import Case
from tests.conformance.forms.form import Form, Outcome


class Chosen(random.Random):
    """Random numbers whose bits are `number`, whatever is asked for."""

    def __init__(self, number: int) -> None:
        super().__init__(number)
        self._number = number

    def getrandbits(self, k: int, /) -> int:
        assert self._number < 2**k
        return self._number


class Experiments(Form):
    """Fixes the points at which laws are compared, and checks what is said of errors."""

    keys = frozenset({"rng_seed", "reference_error_text"})
    expected_keys = frozenset({"evaluation_error_is_null", "seed_http_status"})

    def context(self, case: Case, context: Context) -> Context:
        if "rng_seed" not in case.data:
            return context
        return replace(context, make_rng=lambda: Chosen(case.data["rng_seed"]))

    def check(self, case: Case, harness: EnvironmentHarness, outcome: Outcome) -> list[str]:
        found = []
        wanted = case.expected.get("evaluation_error_is_null")
        if wanted is not None and (outcome.fields.get("evaluation_error") is None) is not wanted:
            found.append(f"evaluation_error: expected null: {wanted}, found {outcome.fields.get('evaluation_error')!r}")
        if "seed_http_status" in case.expected and not isinstance(outcome.error, DataError):
            found.append(f"expected a refused seeding, found {outcome.error or dict(outcome.fields)!r}")
        return found
