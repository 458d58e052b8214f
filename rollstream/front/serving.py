"""Serving the app: sockets, one for the head and one more for each environment where there are several; until a signal.

The reference gives each server a port of its own, and its clients put their paths right behind it. So do we: one process and
one app listen on all of them, and the port says which environment a bare path means. Invariant: a port that is taken is an
error before anything starts.
"""

from __future__ import annotations

import signal
import socket
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from ipaddress import ip_address

import uvicorn

from rollstream.front.app import Front
from rollstream.front.discovery import Address
from rollstream.runner.early import STOPPING

_BACKLOG = 2_048
_CONNECTIONS = 8_192
"""Open connections beyond which uvicorn answers 503 by itself: each costs a file descriptor and buffers."""
_KEEP_ALIVE_S = 75
"""Longer than clients keep unused connections (httpx 5 s, aiohttp 15 s): a request on one that the server is closing is reset,
as was seen with uvicorn's own 5 s on a busy machine."""

_DRAIN_S = 10


def is_local(host: str) -> bool:
    """Whether only this machine reaches what listens there."""
    try:
        return host == "localhost" or ip_address(host).is_loopback
    except ValueError:
        return False


def listen(host: str, port: int) -> socket.socket:
    """A listening socket; raises `OSError` that names host and port."""
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    found = socket.socket(family, socket.SOCK_STREAM)
    try:
        found.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        found.bind((host, port))
        found.listen(_BACKLOG)
        found.setblocking(False)
    except OSError as e:
        found.close()
        raise OSError(e.errno, e.strerror or str(e), f"{host}:{port}") from e
    return found


async def serve(front: Front, host: str, port: int, ready: Callable[[Front], None]) -> None:
    """Serve until SIGINT or SIGTERM; `ready` is called once everything listens."""
    with ExitStack() as stack:
        head = stack.enter_context(listen(host, port))
        sockets = [head]
        front.head, front.local = _address(host, head), is_local(host)
        if len(front.environments) > 1:
            sockets += _of_their_own(front, host, stack)
        app = front.app()
        config = uvicorn.Config(
            app,
            log_config=None,
            log_level="warning",
            access_log=False,
            server_header=False,
            limit_concurrency=_CONNECTIONS,
            timeout_keep_alive=_KEEP_ALIVE_S,
            timeout_graceful_shutdown=_DRAIN_S,
            lifespan="on",
            ws="none",
        )
        await _Server(config, lambda: ready(front)).serve(sockets=sockets)


def _of_their_own(front: Front, host: str, stack: ExitStack) -> Sequence[socket.socket]:
    names = [front.registry.variant_of(name) for name in front.environments]
    found = [stack.enter_context(listen(host, 0)) for _ in names]
    front.places = {name: _address(host, s) for name, s in zip(names, found, strict=True)}
    return found


def _address(host: str, listening: socket.socket) -> Address:
    """What clients are told: this machine's name where it listens on all of its addresses."""
    named = socket.gethostname() if host in {"0.0.0.0", "::"} else host  # noqa: S104 - compared, not bound
    return Address(named, listening.getsockname()[1])


class _Server(uvicorn.Server):
    """uvicorn's server, saying when it is up."""

    def __init__(self, config: uvicorn.Config, ready: Callable[[], None]) -> None:
        super().__init__(config)
        self._ready = ready

    @contextmanager
    def capture_signals(self) -> Iterator[None]:
        """SIGINT and SIGTERM end the server, and only that: uvicorn would raise them again afterwards."""
        former = {number: signal.signal(number, self.handle_exit) for number in STOPPING}
        try:
            yield
        finally:
            for number, handler in former.items():
                signal.signal(number, handler)

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        await super().startup(sockets)
        if not self.should_exit:
            self._ready()
