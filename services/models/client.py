"""One model call, made to arrive or to fail within its bounds.

Owns the HTTP side of an endpoint: the pooled session, the tries of a call and their back-off. Invariants: a call ends
with a reply, a `ModelError` or a `RolloutTimeout`, never later than its deadline; all its tries carry one idempotency
key; a call that waits holds one timer and no task of its own; secrets do not leave it.

aiohttp instead of the openai package's client, which takes ten times the CPU per call. `PolicyClient` is the client of a
judge as well.
"""

from __future__ import annotations

import asyncio
import io
import random
import resource
import time
from collections.abc import Callable
from dataclasses import dataclass
from types import TracebackType
from typing import Any, NamedTuple, Self

import aiohttp
import structlog

from schemas import jsontext
from schemas.errors import ModelError, RolloutError, RolloutTimeout
from services.models import fault as faults
from services.models import reply as replies
from services.models.backoff import back_off, retry_after
from services.models.connector import PacedConnector
from services.models.dialects.choice import dialect_of
from services.models.endpoint import ModelEndpoint
from services.models.fault import Fault
from services.models.gate import EndpointDownError, Gate, Outcome, Ticket
from services.models.masking import Masker
from services.models.reply import ModelReply
from services.models.stats import Snapshot, Tally
from services.models.wire import UnusableReplyError, Wire

_log = structlog.get_logger(__name__)

KEEPALIVE_S = 4.0
"""Idle connections are dropped before the server does it: uvicorn, under vLLM and SGLang, closes after 5 s, and a request
sent into that moment is lost."""

DNS_TTL_S = 60
"""Names are resolved once a minute at most, and a server that moved is found within one."""

_SPARE_FILES = 512
"""Open files kept for Kafka, logs and everything else of the process."""

_STREAM_FROM = 1 << 20
"""aiohttp wants bodies above 1 MiB as a stream, which it writes piece by piece."""

_OK = 200
_IDEMPOTENCY = "Idempotency-Key"


@dataclass(slots=True)
class _Call:
    """One call while it is made. Times are loop times."""

    body: bytes
    wire: Wire
    key: str
    started: float
    end: float
    attempts: int = 0
    budget_end: float = float("inf")
    last: Fault | None = None


class _Answer(NamedTuple):
    body: dict[str, Any]
    raw: bytes


class PolicyClient:
    """Client of one endpoint for one process. `start` and `close` it (or use it as an async context manager)."""

    def __init__(
        self,
        endpoint: ModelEndpoint,
        *,
        uniform: Callable[[float, float], float] = random.uniform,
        wall: Callable[[], float] = time.time,
    ) -> None:
        self.endpoint = endpoint
        self._uniform = uniform
        self._wall = wall
        self._dialect = dialect_of(endpoint)
        secret = (endpoint.api_key, *endpoint.headers.values(), *endpoint.options.default_headers.values())
        self._masker = Masker([h.get_secret_value() for h in secret if h is not None])
        self._tally = Tally()
        self._session: aiohttp.ClientSession | None = None
        self._probing: aiohttp.ClientSession | None = None
        self._alarm: asyncio.TimerHandle | None = None
        self._alarmed_at = float("-inf")

    async def start(self) -> None:
        """Open the connection pool; connects to nothing yet. Raises `InfrastructureError` when a tokenizer is not there."""
        await self._dialect.start()
        loop = asyncio.get_running_loop()
        endpoint = self.endpoint.model_copy(update={"max_concurrency": _affordable(self.endpoint.max_concurrency)})
        self._loop = loop
        self._gate = Gate(endpoint, loop)
        breaker = self._gate.breaker
        pool = PacedConnector(lambda: breaker.is_closed, keepalive_timeout=KEEPALIVE_S, ttl_dns_cache=DNS_TTL_S)
        self._session = self._new_session(pool)
        # The probe has a pool of its own: it must not wait behind those whom the breaker holds back.
        self._probing = self._new_session(aiohttp.TCPConnector(), _connection_trace(self._gate.connected))
        self._arm_alarm()

    async def close(self) -> None:
        """Close the pool. Calls under way fail."""
        if self._session is None or self._probing is None:
            return
        if self._alarm is not None:
            self._alarm.cancel()
        self._gate.close()
        await self._probing.close()
        await self._session.close()
        self._session = self._probing = None

    async def __aenter__(self) -> Self:
        await self.start()
        return self

    async def __aexit__(self, kind: type[BaseException] | None, error: BaseException | None, tb: TracebackType | None) -> None:
        await self.close()

    async def create(
        self,
        body: bytes,
        *,
        idempotency_key: str,
        deadline: float | None = None,
        session: str | None = None,  # noqa: ARG002 - for `ReplicatedClient`
    ) -> ModelReply:
        """Ask for `body`, the JSON of a Responses request, in the engine's own API, and return the Responses object.

        Calls of one `session` go to one replica, where there are several. `deadline` is loop time; the call ends by it or
        after `timeouts.call_s`, whichever is earlier. A context overflow is a reply (platform.md D6; see
        `reply.CONTEXT_OVERFLOW`). Raises `ModelError` when the server refuses or stays unusable past the retry budget, and
        `RolloutTimeout` when time is up or the last try got no answer in time; their `detail` is what the server said,
        masked. `DataError`: the engine's API has no form for the request.
        """
        if self._session is None:
            raise RuntimeError("PolicyClient.create before start() or after close()")
        now = self._loop.time()
        end = now + self.endpoint.timeouts.call_s
        wire = self._dialect.prepare(body, idempotency_key)
        if not isinstance(wire, Wire):
            wire = await wire
        call = _Call(body, wire, idempotency_key, now, end if deadline is None else min(end, deadline))
        self._tally.calls += 1
        if wire.answer is not None:
            return self._reply(call, _Answer(wire.answer, jsontext.dumps(wire.answer)))
        while True:
            ticket = self._gate.try_enter() or await self._enter(call)
            got = await self._try(call, ticket)
            if not isinstance(got, _Answer):
                await self._wait_after(call, got)
            elif call.wire.follow is None or not _follows(call, call.wire.follow(got.body)):
                return self._reply(call, got)

    @property
    def is_down(self) -> bool:
        """Whether calls would wait for the endpoint to come back."""
        return not self._gate.breaker.is_closed

    def snapshot(self) -> Snapshot:
        """Counts so far and the state of the gate."""
        t, gate = self._tally, self._gate
        return Snapshot(
            calls=t.calls,
            answered=t.answered,
            retried_calls=t.retried_calls,
            overflows=t.overflows,
            retries=dict(t.retries),
            failures=dict(t.failures),
            in_flight=gate.in_flight,
            waiting=gate.waiting,
            allowance=gate.limiter.allowance,
            breaker=gate.breaker.state.value,
        )

    def mask(self, text: str) -> str:
        """`text` without this endpoint's secrets."""
        return self._masker.mask(text)

    # -- one try ----------------------------------------------------------------------------------------------------

    async def _enter(self, call: _Call) -> Ticket:
        try:
            return await self._gate.enter(min(call.end, call.budget_end))
        except TimeoutError:
            raise await self._failure(call, call.last, "no place to call it") from None
        except EndpointDownError as e:
            raise await self._failure(call, call.last, str(e)) from None

    async def _try(self, call: _Call, ticket: Ticket) -> _Answer | Fault:
        call.attempts += 1
        outcome, pause_s = Outcome.SILENT, None  # stands when we are cancelled
        try:
            got = await self._exchange(call, ticket)
            outcome = got.outcome if isinstance(got, Fault) else Outcome.ANSWERED
            if outcome is Outcome.OVERLOADED and isinstance(got, Fault):
                pause_s = got.retry_after_s
            return got
        finally:
            self._gate.leave(ticket, outcome, pause_s)

    async def _exchange(self, call: _Call, ticket: Ticket) -> _Answer | Fault:
        session = self._probing if ticket.probe else self._session
        assert session is not None
        first_byte = min(call.end, ticket.started + self.endpoint.timeouts.first_byte_s)
        body = call.wire.body
        data = body if len(body) < _STREAM_FROM else io.BytesIO(body)
        got_head = False
        try:
            async with asyncio.timeout_at(first_byte) as limit:
                response = await session.post(call.wire.url, data=data, headers={_IDEMPOTENCY: call.key}, allow_redirects=False)
                got_head = True
                raw = await self._read(response, limit, call.end)
        except aiohttp.ClientError as e:
            return faults.of_error(e)
        except TimeoutError:
            return faults.of_timeout(self._loop.time() - ticket.started, got_head=got_head)
        except OSError as e:
            return faults.of_error(e)
        return self._judge(call, response, raw)

    async def _read(self, response: aiohttp.ClientResponse, limit: asyncio.Timeout, end: float) -> bytes | None:
        """The body, or None when it is larger than the bound. A body not read to its end costs the connection."""
        content = response.content
        parts: list[bytes] = []
        room = self.endpoint.max_reply_bytes
        try:
            if not content.is_eof():
                limit.reschedule(min(end, self._loop.time() + self.endpoint.timeouts.body_s))
            while room >= 0 and not content.at_eof():
                chunk = await content.readany()
                parts.append(chunk)
                room -= len(chunk)
        finally:
            if not content.at_eof():
                response.close()
        return None if room < 0 else parts[0] if len(parts) == 1 else b"".join(parts)

    def _judge(self, call: _Call, response: aiohttp.ClientResponse, raw: bytes | None) -> _Answer | Fault:
        if raw is None:
            return faults.of_size(self.endpoint.max_reply_bytes)
        if response.status == _OK:
            try:
                body, problem = call.wire.read(raw)
            except UnusableReplyError as e:
                return faults.of_unusable(str(e), raw)
            return _Answer(body, raw) if problem is None else faults.of_garbage(problem, raw, body)
        if replies.overflows(response.status, raw):
            self._tally.overflows += 1
            body = replies.overflow_body(call.body, self.endpoint.name, call.key)
            return _Answer(body, jsontext.dumps(body))
        asked = retry_after(response.headers, wall_s=self._wall(), cap_s=self.endpoint.retries.retry_after_cap_s)
        return faults.of_status(response.status, raw, asked)

    # -- between tries and at the end -------------------------------------------------------------------------------

    async def _wait_after(self, call: _Call, fault: Fault) -> None:
        """Sleep until the next try, or raise when there is none."""
        if fault.reason == faults.SHUT:
            call.attempts -= 1  # nothing was sent; the gate says when to come back
            return
        budget, now = self.endpoint.retries, self._loop.time()
        call.last = fault
        call.budget_end = min(call.budget_end, now + budget.max_elapsed_s)
        if not fault.retryable or call.attempts >= budget.max_attempts:
            raise await self._failure(call, fault)
        wake = now + back_off(call.attempts, fault.retry_after_s, budget, self._uniform)
        if wake >= min(call.end, call.budget_end):
            raise await self._failure(call, fault, "no time is left for another try", late=wake >= call.end)
        self._tally.retries[fault.reason] += 1
        await asyncio.sleep(wake - now)

    def _reply(self, call: _Call, answer: _Answer) -> ModelReply:
        self._tally.answered += 1
        self._tally.retried_calls += call.attempts > 1
        return ModelReply(answer.body, answer.raw, call.attempts, self._loop.time() - call.started)

    async def _failure(self, call: _Call, fault: Fault | None, why: str = "", *, late: bool = False) -> RolloutError:
        """The error that ends a call: what was met, after how much, and what the server said."""
        now = self._loop.time()
        late = late or now >= call.end
        self._tally.failures[fault.reason if fault else "deadline" if late else "unreachable"] += 1
        spent = f"after {call.attempts} of {self.endpoint.retries.max_attempts} tries in {now - call.started:.1f} s"
        met = "; ".join(part for part in (fault.message if fault else "", why, "deadline passed" if late else "") if part)
        message = self._masker.mask(f"model {self.endpoint.name} at {self._dialect.url.with_query(None)}: {met} ({spent})")
        kind = RolloutTimeout if late or (fault is not None and fault.timeout) else ModelError
        return kind(message, detail=await self._detail(fault), retryable=fault is None or fault.retryable)

    async def _detail(self, fault: Fault | None) -> str:
        if fault is None:
            return ""
        said = self._masker.excerpt(fault.raw)
        if fault.body is None:
            return said
        # The first use imports the openai package, a second of work.
        explained = await asyncio.to_thread(replies.explain, fault.body)
        return f"{said} [{self._masker.excerpt(explained)}]" if explained else said

    # -- housekeeping -----------------------------------------------------------------------------------------------

    def _new_session(self, connector: aiohttp.TCPConnector, *traces: aiohttp.TraceConfig) -> aiohttp.ClientSession:
        headers = {"Content-Type": "application/json", "Accept": "application/json", "Accept-Encoding": "identity"}
        return aiohttp.ClientSession(
            connector=connector,
            headers={**headers, **self.endpoint.request_headers()},
            cookie_jar=aiohttp.DummyCookieJar(),
            timeout=aiohttp.ClientTimeout(total=None, sock_connect=self.endpoint.timeouts.connect_s),
            trace_configs=list(traces),
        )

    def _arm_alarm(self) -> None:
        self._alarm = self._loop.call_later(self.endpoint.idle_alarm_s / 4, self._watch)

    def _watch(self) -> None:
        """Say so when the endpoint has answered nothing for too long; again only after as long a time."""
        now, limit = self._loop.time(), self.endpoint.idle_alarm_s
        silent = self._gate.silence(now)
        if silent >= limit and now - self._alarmed_at >= limit:
            self._alarmed_at = now
            _log.error(
                "model_silent",
                endpoint=self.endpoint.base_url,
                model=self.endpoint.name,
                silent_s=round(silent, 1),
                in_flight=self._gate.in_flight,
                waiting=self._gate.waiting,
            )
        self._arm_alarm()


def _follows(call: _Call, more: Wire | None) -> bool:
    """Make `call` ask `more`, under a key of its own; the try that was answered does not count against its budget."""
    if more is None:
        return False
    call.wire, call.key, call.attempts = more, f"{call.key}#tokens", call.attempts - 1
    return True


def _connection_trace(connected: Callable[[], None]) -> aiohttp.TraceConfig:
    """Tells when a connection is there. Only the probe's session has it: hooks cost every request."""

    async def on_connection(_session: Any, _context: Any, _params: Any) -> None:
        connected()

    trace = aiohttp.TraceConfig()
    trace.on_connection_create_end.append(on_connection)
    trace.on_connection_reuseconn.append(on_connection)
    return trace


def _affordable(wanted: int) -> int:
    """Connections that the limit of open files allows, after raising the soft limit as far as needed and allowed."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    need = wanted + _SPARE_FILES
    if soft != resource.RLIM_INFINITY and soft < need:
        soft = need if hard == resource.RLIM_INFINITY else min(need, hard)
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
    if soft == resource.RLIM_INFINITY or soft >= need:
        return wanted
    allowed = max(1, soft - _SPARE_FILES)
    _log.warning("open_files_limit", limit=soft, wanted=wanted, concurrency=allowed, remedy="raise `ulimit -n`")
    return allowed
