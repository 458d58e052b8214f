"""`sandbox` with requests: replies of a code server in call order, each with the exact request that must have been sent."""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Mapping, Sequence
from typing import Any

import aiohttp

from environments.context import Context
from environments.testing import EnvironmentHarness
from services.code_server.client import HttpCodeServer, failed, read_reply
from tests.conformance.cases import Case
from tests.conformance.forms.form import Form, Outcome

_KNOWN = frozenset({"request", "reply", "raise", "status", "body"})


class Scripted(HttpCodeServer):
    """The project's client with a scripted connection; `wrong` says what was asked otherwise."""

    def __init__(self, script: Sequence[Mapping[str, Any]]) -> None:
        super().__init__("http://code-server")
        self._session: Any = object()
        self.left = list(script)
        self.wrong: list[str] = []

    async def _post(self, session: Any, request: Mapping[str, Any], timeout_s: float) -> Mapping[str, Any]:
        if not self.left:
            self.wrong.append(f"sandbox: one call too many, with {dict(request)!r}")
            return {}
        entry = self.left.pop(0)
        if dict(request) != entry["request"]:
            self.wrong.append(f"sandbox: expected the request {entry['request']!r}, found {dict(request)!r}")
        if entry.get("raise") == "timeout":
            raise TimeoutError
        if entry.get("raise") == "connect":
            raise aiohttp.ClientConnectionError("connection refused")
        if entry.get("status") == 502:
            return failed("Sandbox 502 error")
        return read_reply(entry["body"].encode() if "body" in entry else json.dumps(entry["reply"]).encode())


class ScriptedServer(Form):
    """Answers the calls; too many, too few or different ones are differences."""

    keys = frozenset({"sandbox"})

    def obstacle(self, case: Case) -> str | None:
        script = case.data.get("sandbox") or ()
        understood = isinstance(script, Sequence) and all(e.keys() <= _KNOWN and "request" in e for e in script)
        return None if understood else "no form for sandbox"

    def context(self, case: Case, context: Context) -> Context:
        if "sandbox" not in case.data:
            return context
        return dataclasses.replace(context, code_server_client=Scripted(case.data["sandbox"]))

    def check(self, case: Case, harness: EnvironmentHarness, outcome: Outcome) -> list[str]:
        server = harness.context.code_server_client
        if not isinstance(server, Scripted):
            return []
        return [*server.wrong, *(f"sandbox: not called with {e['request']!r}" for e in server.left)]
