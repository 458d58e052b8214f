"""The page that says how many cases agree: counts, percentiles, reasons."""

from __future__ import annotations

import pytest

from tests.conformance.report import Row, percentile, report_page


def test_percentiles_are_values_that_were_measured() -> None:
    values = [float(v) for v in range(1, 101)]
    assert [percentile(values, s) for s in (0.5, 0.99, 1.0)] == [50.0, 99.0, 100.0]
    assert percentile([3.0], 0.99) == 3.0


def test_the_page_counts_what_did_not_run() -> None:
    page = report_page([Row("b", 2, 1, {"no | data": 3}, [0.001, 0.003]), Row("a", 1, 0, {}, [])])
    lines = page.splitlines()
    assert "| `a` | 1 of 1 | – | – | – |" in lines
    assert "| `b` | 2 of 6 | 1.00 | 3.00 | 3 × no \\| data |" in lines
    assert lines.index("| `a` | 1 of 1 | – | – | – |") < lines.index("| `b` | 2 of 6 | 1.00 | 3.00 | 3 × no \\| data |")
    assert "Together 3 of 7 cases." in lines


def test_a_verification_that_raises_is_not_timed() -> None:
    from environments.context import Context
    from environments.environment import Environment
    from schemas.errors import VerifierError
    from tests.conformance.running import TimedHarness

    harness = TimedHarness(Environment(), [], context=Context())
    harness.seed({"responses_create_params": {"input": "?"}})
    with pytest.raises(VerifierError):
        harness.verify({"output": []})
    assert harness.spent == []
