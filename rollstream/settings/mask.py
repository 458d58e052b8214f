"""Secrets out of what is shown.

Invariant: a value that is a secret by its type, by its key's name, or by standing in a URL before the `@` is never printed.
"""

from __future__ import annotations

import re
from typing import Any

from pydantic import SecretStr

MASK = "********"

_SECRET_KEY = re.compile(r"(^|[._-])(api[._-]?key|key|token|secret|password|passwd|credentials?)$", re.IGNORECASE)
_USER_INFO = re.compile(r"(?<=://)[^/@\s]+(?=@)")
_SECRET_QUERY = re.compile(r"(?i)([?&](?:[\w-]*(?:key|token|secret|password|signature|sig))=)[^&\s]+")


def masked(key: str, value: Any) -> Any:
    """`value` of the setting `key` as it may be shown: the mask, or the value with what a URL hides taken out."""
    if value is None or value == "":
        return value
    if isinstance(value, SecretStr) or _SECRET_KEY.search(key):
        return MASK
    return mask_urls(value) if isinstance(value, str) else value


def mask_urls(text: str) -> str:
    """`text` without the user names and passwords, and without the keys and tokens, of the URLs in it."""
    return _SECRET_QUERY.sub(rf"\1{MASK}", _USER_INFO.sub(MASK, text))
