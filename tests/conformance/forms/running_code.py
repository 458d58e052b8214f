"""The real sandbox, and live sessions in it, for every case: what the machine has, as a worker would choose it.

Nothing runs in it unless an environment asks. One service serves all cases of the process.
"""

from __future__ import annotations

import dataclasses
from functools import cache

from environments import testing
from environments.context import Context
from services.sandbox.sandbox import SandboxService
from services.sandbox.sessions import LiveSessions
from tests.conformance.cases import Case
from tests.conformance.forms.form import Form


class RunningCode(Form):
    """Gives the environment the sandbox and the sessions."""

    def context(self, case: Case, context: Context) -> Context:
        if context.sandbox_client:
            return context
        return dataclasses.replace(context, sandbox_client=_sandbox(), session_pool=_sessions())


def close() -> None:
    """End what the sandbox keeps, where it was used (it lives on the harnesses' loop)."""
    if _sessions.cache_info().currsize:
        testing._loop().run_until_complete(_sessions().end_all())
    if _sandbox.cache_info().currsize:
        testing._loop().run_until_complete(_sandbox().close())


@cache
def _sandbox() -> SandboxService:
    return SandboxService()


@cache
def _sessions() -> LiveSessions:
    return LiveSessions(_sandbox().launcher)
