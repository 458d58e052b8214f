"""Translated settings as variables of the environment, where every command of ours and every process it starts finds them.

Invariant: no secret is in an argument or a file.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from rollstream.settings.load import variable
from schemas import jsontext


def variables(settings: Mapping[str, Any]) -> dict[str, str]:
    """A variable for each setting of the policy, one for all other models, one for all variants."""
    found = {variable(f"model.{key}"): _text(value) for key, value in settings.get("model", {}).items()}
    return found | {variable(key): _text(settings[key]) for key in ("models", "variants") if settings.get(key)}


def _text(value: Any) -> str:
    if isinstance(value, list) and all(isinstance(v, str) for v in value):
        return ",".join(value)  # base URLs of replicas
    return value if isinstance(value, str) else jsontext.dumps(value).decode()
