"""How far a submitted law is from the hidden one: RMSLE over 5,000 random points (newton_bench.md, "Scoring" 3).

Invariant: the submission runs in the sandbox and never meets the hidden law; what it leaves is read as numbers only.
"""

from __future__ import annotations

import array
import math
import secrets
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from environments.context import PYTHON, Context, Limits, SandboxResult
from environments.newton_bench.laws import law_of
from environments.newton_bench.modules import MODULES, Range
from schemas.errors import InfrastructureError

if TYPE_CHECKING:
    import numpy as np

POINTS = 5_000
_PROGRAM = Path(__file__).with_name("submission.py")
_TOLD = 2_000
"""Characters of a submission's own error that are kept."""

_ENDED = {"memory": "it used too much memory", "output": "it wrote too much", "scratch": "it wrote too many files"}


@dataclass(frozen=True, slots=True)
class Hidden:
    """Which law a row hides."""

    module: str
    difficulty: str
    version: str


@dataclass(frozen=True, slots=True)
class Measured:
    """`rmsle` is None where it could not be computed; `error` says why when that was the submission's fault.

    `gaps`: points at which the submission gives no number and the hidden law does.
    """

    rmsle: float | None
    error: str | None = None
    gaps: int = 0


@dataclass(frozen=True, slots=True)
class Test:
    """Points (rows of doubles) and the hidden law's value at each."""

    points: bytes
    truth: Sequence[float]


async def measure(code: str, hidden: Hidden, seed: int, seconds: float, context: Context) -> Measured:
    """Run `code` and compare; raises `InfrastructureError` when the sandbox could not run it."""
    test = await context.compute(make_test, hidden, seed)
    word = secrets.token_hex(16)
    files = {"main.py": _PROGRAM.read_bytes(), "law.py": code.encode("utf-8", "surrogatepass"), "points": test.points}
    columns = len(MODULES[hidden.module].parameters)
    ended = await context.sandbox.run(
        [PYTHON, "main.py", str(columns)],
        files=files,
        stdin=word.encode(),
        limits=Limits(wall_s=seconds, memory=2 << 30),
        collect=("values", "error"),
    )
    error = _error(ended, word.encode())
    if error is not None:
        return Measured(None, error)
    return await context.compute(compare, ended.files["values"], test.truth)


def make_test(hidden: Hidden, seed: int) -> Test:
    """The points that `seed` gives, as `numpy.random.seed(seed)` would, and the truth at each."""
    import numpy as np

    numbers = np.random.RandomState(seed)
    rows = np.column_stack([_column(numbers, where) for where in MODULES[hidden.module].ranges])
    law = law_of(hidden.module, hidden.difficulty, hidden.version)
    return Test(rows.tobytes(), [float(law(*row)) for row in rows.tolist()])


def compare(values: bytes, truth: Sequence[float]) -> Measured:
    """RMSLE of absolute values (doubles) against the truth, over the points where neither is NaN."""
    if len(values) != 8 * len(truth):
        return Measured(None, "the submission left no values")
    found = array.array("d", values)
    pairs = [(abs(p), abs(t)) for p, t in zip(found, truth, strict=True) if not (math.isnan(p) or math.isnan(t))]
    gaps = sum(math.isnan(p) and not math.isnan(t) for p, t in zip(found, truth, strict=True))
    squares = [(math.log1p(p) - math.log1p(t)) ** 2 for p, t in pairs]
    rmsle = math.sqrt(math.fsum(squares) / len(squares)) if squares and all(map(math.isfinite, squares)) else None
    return Measured(rmsle, gaps=gaps)


def _column(numbers: np.random.RandomState, where: Range) -> np.ndarray[Any, np.dtype[np.float64]]:
    import numpy as np

    if where.log:
        return np.exp(numbers.uniform(np.log(where.low), np.log(where.high), POINTS))
    return numbers.uniform(where.low, where.high, POINTS)


def _error(ended: SandboxResult, word: bytes) -> str | None:
    """What was wrong with the submission; None when it left values."""
    if not ended.stdout.startswith(word) and not ended.limit:
        raise InfrastructureError(
            f"the program for submitted laws did not start in the sandbox (exit status {ended.returncode})",
            detail=ended.stderr.decode("utf-8", "replace")[-_TOLD:],
        )
    if ended.timed_out:
        return "the submitted code took too long"
    if ended.limit:
        return f"the submitted code was ended: {_ENDED.get(ended.limit, ended.limit)}"
    if "error" in ended.files:
        return f"the submitted code failed: {ended.files['error'].decode('utf-8', 'replace')[:_TOLD]}"
    return None if "values" in ended.files else f"the submitted code ended its process (status {ended.returncode})"
