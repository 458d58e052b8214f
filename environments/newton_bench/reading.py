"""What is read out of texts: the submitted law, its form, the judge's answer (newton_bench.md, "Scoring").

Invariant: time is linear in the text; reading never raises.
"""

from __future__ import annotations

import re
from functools import cache

from environments.common.messages import from_last
from environments.newton_bench.modules import MODULES
from environments.newton_bench.submission import FUNCTION
from environments.response import Response

_OPEN, _CLOSE = "<final_law>", "</final_law>"
_RETURN = re.compile(r"return\s+\S")
_ANSWER = re.compile(r"ANSWER:\s*(YES|NO)")
_WORD = re.compile(r"\b(?:YES|NO)\b")


def submitted(response: Response) -> str | None:
    """The law in the last message whose last opening tag is closed."""
    for text in from_last(response):
        start = text.rfind(_OPEN)
        end = text.find(_CLOSE, start) if start >= 0 else -1
        if end >= 0:
            return text[start + len(_OPEN) : end].strip()
    return None


def fault(code: str, module: str) -> str | None:
    """Why the code is no law of the module by its form, or None."""
    if not _signature(module).search(code):
        return f"there is no function {FUNCTION}({', '.join(MODULES[module].parameters)})"
    return None if _RETURN.search(code) else "the function returns nothing"


def equivalent(reply: str | None) -> bool | None:
    """Whether the judge said yes: the first answer in the form asked for, else the last yes or no; None for neither."""
    text = (reply or "").upper()
    answer = _ANSWER.search(text)
    if answer:
        return answer[1] == "YES"
    words = _WORD.findall(text)
    return words[-1] == "YES" if words else None


@cache
def _signature(module: str) -> re.Pattern[str]:
    about = MODULES[module]
    blank = r"\s*" if about.spaced else ""
    names = r",\s*".join(map(re.escape, about.parameters))
    return re.compile(rf"def\s+{FUNCTION}\s*\({blank}{names}{blank}\):")
