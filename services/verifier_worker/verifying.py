"""Where a verification runs: in a side thread, or in a process when the environment says that it is `cpu_heavy`.

Owns the way there and back. Invariant: both run the same code (`_verdict`), and whatever comes of it reaches the caller as a
verdict or one `RolloutError`.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cache, partial
from inspect import iscoroutinefunction
from pathlib import Path
from typing import Any, TypeVar

from environments.context import Context
from environments.dispatch import read_task, settled, start_verify, start_verify_group, then
from environments.environment import Environment, Member
from environments.response import Response
from environments.verdict import Verdict
from schemas import jsontext
from schemas.errors import DataError, RolloutError, VerifierError
from schemas.identity import RolloutRef
from schemas.quick import quick
from services.runtime.chance import VERIFICATION, rng_of
from services.runtime.clients import Clients
from services.runtime.offload import Offload, told
from services.runtime.state import read_state
from services.verifier_worker.here import loop_here, registry_here
from services.verifier_worker.judge_calls import JUDGE_CALLS, Recorder, Replay

T = TypeVar("T")


@quick
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

    async def verdict(
        self, environment: Environment, subject: Subject, row: Mapping[str, Any], recorded: Sequence[Any] = ()
    ) -> Verdict:
        """The verdict on `subject` (`row`: its row, parsed); raises the `RolloutError` that kept it from one.

        Model calls that are among the `recorded` of an earlier verification are answered from there.
        """
        heavy = environment.cpu_heavy and self.clients.pool is not None
        work = self._in_process(subject) if heavy else self._in_thread(environment, subject, row, recorded)
        return await self._settled(work, subject)

    async def verdicts(
        self, environment: Environment, subjects: Sequence[Subject], *, all_or_none: bool, recorded: Sequence[Any] = ()
    ) -> list[Verdict | RolloutError]:
        """The verdicts on the `subjects` of one group, in their order; raises the `RolloutError` that kept it from them.

        A subject that cannot be read has that error in its place and is not scored; with `all_or_none`, nobody is then.
        A group is always verified in a thread, be the environment `cpu_heavy` or not.
        """
        context = self._context(subjects[0], recorded)
        call = partial(_group_verdicts, environment, subjects, context, record=self.record, all_or_none=all_or_none)
        waits = iscoroutinefunction(environment.verify_group)
        return await self._settled(self.offload.submit(call, self.timeout_s, waits=waits), subjects[0])

    async def _settled(self, work: Awaitable[T], subject: Subject) -> T:
        return await told(work, f"the verifier did not return within {self.timeout_s:g} s", VerifierError, subject.environment)

    def _context(self, subject: Subject, recorded: Sequence[Any]) -> Context:
        context = self.clients.context(subject.ref, VERIFICATION)
        return replace(context, models=Replay(recorded, context.models)) if recorded else context

    def _in_thread(
        self, environment: Environment, subject: Subject, row: Mapping[str, Any], recorded: Sequence[Any]
    ) -> Awaitable[Verdict]:
        context = self._context(subject, recorded)
        waits = _waits(type(environment).verify)  # a plain function cannot ask a model
        verify = _recorded_verdict if waits and self.record else _verdict
        call = partial(verify, environment, subject, row, context)
        return self.offload.submit(call, self.timeout_s, waits=waits)

    def _in_process(self, subject: Subject) -> Awaitable[Verdict]:
        assert self.clients.pool is not None
        return self.clients.pool.run(verify_in_this_process, subject, self.clients.data_dir, timeout_s=self.timeout_s)


@cache
def _waits(verify: Callable[..., Any]) -> bool:
    return iscoroutinefunction(verify)


def _verdict(
    environment: Environment, subject: Subject, row: Mapping[str, Any], context: Context
) -> Verdict | Awaitable[Verdict]:
    task = read_task(environment, row)
    state = read_state(environment, subject.state)
    response = Response(jsontext.loads_lenient(subject.response))
    return start_verify(environment, task, response, state, context)


async def _recorded_verdict(environment: Environment, subject: Subject, row: Mapping[str, Any], context: Context) -> Verdict:
    """The verdict, with the model calls that led to it among its fields."""
    recorder = Recorder(context.models)
    verdict = await settled(_verdict(environment, subject, row, replace(context, models=recorder)))
    if recorder.calls:
        verdict.fields[JUDGE_CALLS] = recorder.calls
    return verdict


def _group_verdicts(
    environment: Environment, subjects: Sequence[Subject], context: Context, *, record: bool, all_or_none: bool
) -> list[Verdict | RolloutError] | Awaitable[list[Verdict | RolloutError]]:
    """As `Verifying.verdicts`; the group's model calls are among the fields of its first verdict."""
    found = [_member(environment, subject) for subject in subjects]
    members = [m for m in found if isinstance(m, Member)]
    if not members or (all_or_none and len(members) < len(found)):
        return [_incomplete(len(found), len(members)) if isinstance(m, Member) else m for m in found]
    recorder = Recorder(context.models)
    given = replace(context, models=recorder) if record else context

    def placed(verdicts: list[Verdict]) -> list[Verdict | RolloutError]:
        if recorder.calls:
            verdicts[0].fields[JUDGE_CALLS] = recorder.calls
        each = iter(verdicts)
        return [next(each) if isinstance(m, Member) else m for m in found]

    return then(start_verify_group(environment, members, given), placed)


def _member(environment: Environment, subject: Subject) -> Member | RolloutError:
    try:
        task = read_task(environment, jsontext.loads(subject.row))
        response = Response(jsontext.loads_lenient(subject.response))
        return Member(task, response, read_state(environment, subject.state), subject.ref.rollout_index)
    except RolloutError as e:
        return e
    except ValueError as e:
        return DataError(f"{subject.environment}: {e}")


def _incomplete(wanted: int, readable: int) -> VerifierError:
    return VerifierError(f"the group was not scored: {wanted - readable} of its {wanted} rollouts could not be read")


def verify_in_this_process(subject: Subject, data_dir: Path | None) -> Verdict:
    """The verdict, with the environments that this process finds and a context that has no clients. For the process pool."""
    environment = registry_here().binding(subject.environment, None).environment
    make_rng = partial(rng_of, subject.ref, VERIFICATION)
    context = Context(rollout_id=subject.ref.rollout_id, make_rng=make_rng, data_dir=data_dir)
    return loop_here().run_until_complete(settled(_verdict(environment, subject, jsontext.loads(subject.row), context)))
