"""Where a verification runs: in a side thread, or in a process when the environment says that it is `cpu_heavy`.

Owns the way there and back. Invariant: both run the same code (`_verdict`), and whatever comes of it reaches the caller as a
verdict or one `RolloutError`.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Mapping
from dataclasses import dataclass, replace
from functools import cache, partial
from inspect import iscoroutinefunction
from pathlib import Path
from typing import Any

from environments.context import Context
from environments.dispatch import read_task, run_verify
from environments.environment import Environment
from environments.registry import Registry
from environments.response import Response
from environments.verdict import Verdict
from schemas import jsontext
from schemas.errors import RolloutError, RolloutTimeout, VerifierError
from schemas.identity import RolloutRef
from services.runtime.chance import VERIFICATION, rng_of
from services.runtime.clients import Clients
from services.runtime.offload import Offload
from services.runtime.state import read_state
from services.verifier_worker.judge_calls import JUDGE_CALLS, Recorder


@dataclass(frozen=True, slots=True)
class Subject:
    """What is verified: a rollout of the variant `environment`, as the bytes that its trajectory holds."""

    ref: RolloutRef
    environment: str
    row: bytes
    response: bytes
    state: bytes


@dataclass(frozen=True, slots=True)
class Verifying:
    """Verifies rollouts where they harm nobody. `timeout_s` bounds one verification; `record` keeps its model calls."""

    offload: Offload
    clients: Clients
    timeout_s: float
    record: bool = True

    async def verdict(self, environment: Environment, subject: Subject, row: Mapping[str, Any]) -> Verdict:
        """The verdict on `subject` (`row`: its row, parsed); raises the `RolloutError` that kept it from one."""
        heavy = environment.cpu_heavy and self.clients.pool is not None
        work = self._in_process(subject) if heavy else self._in_thread(environment, subject, row)
        try:
            return await work
        except RolloutTimeout as e:
            raise RolloutTimeout(f"the verifier did not return within {self.timeout_s:g} s") from e
        except (RolloutError, asyncio.CancelledError):
            raise
        except Exception as e:
            raise VerifierError(f"{subject.environment}: {e!r}") from e

    def _in_thread(self, environment: Environment, subject: Subject, row: Mapping[str, Any]) -> Awaitable[Verdict]:
        context = self.clients.context(subject.ref, VERIFICATION)
        verify = _recorded_verdict if self.record else _verdict
        call = partial(verify, environment, subject, row, context)
        return self.offload.submit(call, self.timeout_s, waits=iscoroutinefunction(environment.verify))

    def _in_process(self, subject: Subject) -> Awaitable[Verdict]:
        assert self.clients.pool is not None
        return self.clients.pool.run(verify_in_this_process, subject, self.clients.data_dir, timeout_s=self.timeout_s)


async def _verdict(environment: Environment, subject: Subject, row: Mapping[str, Any], context: Context) -> Verdict:
    task = read_task(environment, row)
    state = read_state(environment, subject.state)
    response = Response(jsontext.loads_lenient(subject.response))
    return await run_verify(environment, task, response, state, context)


async def _recorded_verdict(environment: Environment, subject: Subject, row: Mapping[str, Any], context: Context) -> Verdict:
    """The verdict, with the model calls that led to it among its fields."""
    recorder = Recorder(context.models)
    verdict = await _verdict(environment, subject, row, replace(context, models=recorder))
    if recorder.calls:
        verdict.fields[JUDGE_CALLS] = recorder.calls
    return verdict


def verify_in_this_process(subject: Subject, data_dir: Path | None) -> Verdict:
    """The verdict, with the environments that this process finds and a context that has no clients. For the process pool."""
    environment = _registry().binding(subject.environment, None).environment
    make_rng = partial(rng_of, subject.ref, VERIFICATION)
    context = Context(rollout_id=subject.ref.rollout_id, make_rng=make_rng, data_dir=data_dir)
    return _loop().run_until_complete(_verdict(environment, subject, jsontext.loads(subject.row), context))


@cache
def _registry() -> Registry:
    return Registry.load()


@cache
def _loop() -> asyncio.AbstractEventLoop:
    return asyncio.new_event_loop()
