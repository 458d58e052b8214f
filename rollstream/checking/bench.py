"""What an environment under check may use: the sandbox of this machine, and models that are scripts.

Invariant: nothing here asks the network for anything; an environment that needs more finds that it is not there.
"""

from __future__ import annotations

import asyncio
import random
import threading
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from types import TracebackType
from typing import TYPE_CHECKING, Any, Self

from environments.context import Context
from environments.response import Response
from environments.testing import ScriptedModel
from rollstream.scripted import script
from rollstream.scripted.options import Options
from schemas import jsontext
from schemas.identity import RolloutRef
from services.runtime.chance import VERIFICATION

if TYPE_CHECKING:
    from rollstream.settings import Settings
    from services.runtime.clients import Clients

_REF = RolloutRef("check", "task-0", 0, 0)
_OPTIONS = Options()

_READ = 8_192
"""Characters of a text that the scripted model reads."""


class Script(ScriptedModel):
    """The scripted server (`rollstream.scripted`) without HTTP: as a policy, as a judge, as any other model.

    Of long texts it reads the ends, so that what a check measures is the environment.
    """

    def answer(self, params: Mapping[str, Any]) -> Mapping[str, Any]:
        """The reply to `params`; the same request always gets the same one."""
        params = {**params, "input": _ends(params.get("input", ""))}
        turn = script.read(params, script.digest(params, "", _OPTIONS))
        items = script.output(turn, _OPTIONS)
        return script.response(params, items, turn, (len(jsontext.dumps(params)), len(jsontext.dumps(items))), 0)

    async def create(self, params: Mapping[str, Any]) -> Response:
        """`answer`, as a model client gives it."""
        return Response(self.answer(params))


def _ends(value: Any) -> Any:
    """Items with the ends of their texts alone."""
    if isinstance(value, str):
        return value[-_READ:]
    if isinstance(value, list | tuple):
        return [_ends(v) for v in value]
    return {k: _ends(v) for k, v in value.items()} if isinstance(value, Mapping) else value


@dataclass(frozen=True)
class AnyName(Mapping[str, ScriptedModel]):
    """One model under every name."""

    model: ScriptedModel = field(default_factory=Script)

    def __getitem__(self, name: str) -> ScriptedModel:
        return self.model

    def __iter__(self) -> Iterator[str]:
        return iter(())

    def __len__(self) -> int:
        return 0


class Bench:
    """The services of a check, running while it is entered (`with Bench(settings) as bench`)."""

    def __init__(self, settings: Settings) -> None:
        self._settings = settings
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, name="services of a check", daemon=True)
        self._clients: Clients | None = None

    def __enter__(self) -> Self:
        from rollstream.runner.assembly import clients_of

        self._clients = clients_of(self._settings)
        self._clients.models = AnyName()
        self._clients.pages = None  # a check asks nothing of the web
        self._clients.pool = None  # an interpreter more would take longer than what it computes here
        self._thread.start()
        self._wait(self._clients.start())
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        if self._clients is not None:
            self._wait(self._clients.close())
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join()
        self._loop.close()

    def context(self, judge: ScriptedModel | None = None) -> Context:
        """A context as a verification of one rollout gets it: a new one each time, with the same random numbers."""
        if self._clients is None:
            raise RuntimeError("the bench has not been entered")
        made = self._clients.context(_REF, VERIFICATION)
        return replace(made, make_rng=lambda: random.Random(7), models=AnyName(judge) if judge else AnyName())  # noqa: S311 - not for secrets

    def _wait(self, work: Any) -> None:
        asyncio.run_coroutine_threadsafe(work, self._loop).result(60)
