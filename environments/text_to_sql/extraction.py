"""Which part of an answer is its SQL: the reference's three rules (text_to_sql.md, "Scoring").

Invariant: time is linear in the text. Rules that look odd are the reference's: scores depend on them.
"""

from __future__ import annotations

import re

_SQL_FENCE = re.compile(r"```sql(.*?)```", re.DOTALL | re.IGNORECASE)
_FENCE = re.compile(r"```(.*?)```", re.DOTALL)
_STATEMENT = re.compile(r"(?:SELECT|INSERT|UPDATE|DELETE|WITH|CREATE|ALTER|DROP)\s", re.IGNORECASE)
_RAW = re.compile(r"(?:SELECT|INSERT|UPDATE|DELETE|WITH)\s", re.IGNORECASE)


def sql_of(text: str) -> str | None:
    """The query: of the last fence tagged `sql`, of the last plain fence with a statement, else from the first keyword on.

    Empty when the last tagged fence is; None when there is nothing.
    """
    tagged = _SQL_FENCE.findall(text)
    if tagged:
        return str(tagged[-1]).strip()
    fenced = (content.strip() for content in reversed(_FENCE.findall(text)))
    return next((content for content in fenced if _STATEMENT.match(content)), None) or _raw(text)


def _raw(text: str) -> str | None:
    """From the first keyword to the last semicolon behind it, or to the end; it ends in one semicolon."""
    found = _RAW.search(text)
    if found is None:
        return None
    last = text.rfind(";", found.start())
    statement = text[found.start() : last + 1] if last >= 0 else text[found.start() :]
    return statement.strip().rstrip(";") + ";"
