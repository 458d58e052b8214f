"""What a failed attempt is told (math_formal_lean.md, "Scoring" 7 and 8).

Owns the reading of Lean's messages and the layout of the answer to them. Invariant: linear in code and output, and quoted
text can only fill its own place in a template.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

PROJECT = "/lean4/my_project"
"""Where the server compiles: the beginning of every message of the compiler."""

MAX_ERRORS = 8
MAX_RAW = 2000
"""Characters of raw output that are quoted; a compiler may repeat one mistake a thousand times."""

CONTEXT_LINES = 4

EMPTY = "The answer had no text, so there was nothing to compile."
SILENT = "The compiler did not accept the proof and printed nothing that says why."
TIMED_OUT = "Compilation took longer than allowed and was stopped. Find a simpler proof, with lighter tactics."

TEMPLATE = """An earlier attempt to prove a theorem in Lean 4 was not accepted.

The attempt:

{proof_attempt}

What the compiler said about it:

{error_message}

Work out first what went wrong in each place. Then answer with the whole corrected theorem as one `lean4` code block, and \
with no other code block.
"""

_MESSAGE = re.compile(rf"{PROJECT}/[^\n]*?:([0-9]{{1,9}}):([0-9]{{1,9}}): error:")
_SLOT = re.compile(r"\{\{|\}\}|\{proof_attempt\}|\{error_message\}")


@dataclass(frozen=True, slots=True)
class LeanError:
    """One error of the compiler: line from 1 and column from 0 in the compiled program, and what it says."""

    line: int
    column: int
    message: str


def read_errors(output: str) -> Iterator[LeanError]:
    """The errors in the compiler's output, in order."""
    for piece in _pieces(output):
        found = _MESSAGE.match(piece)
        if found:
            yield LeanError(int(found[1]), int(found[2]), piece.split("error:", 2)[1].strip())


def describe(errors: Sequence[LeanError], code: str) -> str:
    """The first errors, each with the lines around it."""
    lines = code.split("\n")
    shown = "".join(
        _described(number, error, lines) for number, error in enumerate(errors[:MAX_ERRORS], 1) if 1 <= error.line <= len(lines)
    )
    left_out = len(errors) - MAX_ERRORS
    return f"{shown}\n... [Omitted {left_out} more errors] ...\n" if left_out > 0 else shown


def feedback(stdout: str, stderr: str, code: str, streams: Sequence[str]) -> str:
    """What to tell about output that is not that of a proof; errors are read from those `streams`, else it is quoted."""
    errors = [e for text in streams for e in read_errors(text)]
    if errors and (text := describe(errors, code)):
        return text
    raw = f"{stdout}\n{stderr}"
    if not raw.strip():
        return SILENT
    cut = raw if len(raw) <= MAX_RAW else raw[:MAX_RAW] + "\n... [Truncated]"
    return f"Compilation output:\n{cut}"


def fill(template: str, values: Mapping[str, str]) -> str:
    """`template` with `{proof_attempt}` and `{error_message}` filled in; doubled braces become single, others stay."""
    fixed = {"{{": "{", "}}": "}", **{f"{{{name}}}": text for name, text in values.items()}}
    return _SLOT.sub(lambda found: fixed[found[0]], template)


def _pieces(output: str) -> Iterator[str]:
    """Messages: each begins with a line of the project and lasts until the next."""
    held: list[str] = []
    for line in output.split("\n"):
        if line.startswith(PROJECT) and held:
            yield "\n".join(held)
            held = []
        held.append(line)
    yield "\n".join(held)


def _described(number: int, error: LeanError, lines: Sequence[str]) -> str:
    at = error.line - 1
    line = lines[at]
    marked = f"{line[: error.column]}<error>{line[error.column :]}</error>"
    shown = [*lines[max(0, at - CONTEXT_LINES) : at], marked, *lines[at + 1 : at + 2]]
    code = "".join(f"{text}\n" for text in shown)
    return f"\nError {number}:\n\nCorresponding Code:\n```lean4\n{code}\n```\n\nError Message: {error.message}\n"
