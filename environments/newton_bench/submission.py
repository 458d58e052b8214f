"""The program that runs a submitted law at the test points: sent into the sandbox as text, imports nothing of the project.

Reads `law.py` and `points` (rows of doubles), writes `values` (the absolute value at each row, NaN where there is none) or
`error` (why it could not be run). Invariant: it says the word that it was given on stdin before the submission begins, so one
that ends the process is told apart from a program that never started.
"""

from __future__ import annotations

import math
import re
import sys
from pathlib import Path
from typing import Any

FUNCTION = "discovered_law"


def main(columns: int) -> None:
    import numpy as np

    np.seterr(all="ignore")
    code = Path("law.py").read_text("utf-8", "surrogateescape")
    points = np.fromfile("points").reshape(-1, columns)
    sys.stdout.write(f"{sys.stdin.read()}\n")
    sys.stdout.flush()
    try:
        law = function_of(code, {"np": np, "numpy": np, "math": math, "re": re})
        values = np.array([magnitude(law(*row), np) for row in points])
    except BaseException as error:  # noqa: BLE001 - whatever the submission raises is its result
        Path("error").write_text(str(error) or type(error).__name__, "utf-8", "replace")
    else:
        values.tofile("values")


def function_of(code: str, names: dict[str, Any]) -> Any:
    """The submitted function. Names that the submission defines beside it are not visible inside, as in the reference."""
    own: dict[str, Any] = {}
    exec(compile(code, "<string>", "exec", dont_inherit=True), names, own)  # noqa: S102 - this is what the sandbox is for
    return own[FUNCTION]


def magnitude(value: Any, np: Any) -> float:
    """The absolute value of a number; raises `TypeError` for anything else."""
    if isinstance(value, int | float | complex | np.number | np.bool_):
        return float(abs(value))
    raise TypeError(f"{FUNCTION} returned {type(value).__name__}, not a number")


if __name__ == "__main__":
    main(int(sys.argv[1]))
