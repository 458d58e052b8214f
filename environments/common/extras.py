"""What environment code calls before it imports packages of its extra (`environments.extras` knows what an extra asks for).

Invariant: a missing one is said with the commands that install it, and only that environment is affected.
"""

from __future__ import annotations

from functools import cache
from importlib.util import find_spec

from environments.extras import OURS, install_command
from schemas.errors import InfrastructureError


@cache
def lacking(extra: str, modules: tuple[str, ...]) -> str | None:
    """What to tell whoever lacks one of these top-level modules; None when all are installed."""
    missing = [name for name in modules if find_spec(name) is None]
    if not missing:
        return None
    return f"{extra} needs {', '.join(missing)}, not installed here: {install_command(OURS, extra)}"


def require(extra: str, *modules: str) -> None:
    """Raises `InfrastructureError`, which no retry would help, when one of these top-level modules is missing."""
    text = lacking(extra, modules)
    if text is not None:
        raise InfrastructureError(text, retryable=False)
