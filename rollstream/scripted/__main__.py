"""`python -m rollstream.scripted`: the scripted server in a process of its own.

Prints one JSON line with its port and URL once it listens, and stops at SIGTERM, SIGINT, or, with `--with-parent`, when
its standard input ends, so that it does not outlive whoever started it.
"""

from __future__ import annotations

import argparse
import asyncio
import signal
import sys
from collections.abc import Coroutine, Sequence
from typing import Any

import orjson

from rollstream.scripted.options import Latency, Options
from rollstream.scripted.server import ScriptedModel


def main(argv: Sequence[str] | None = None) -> None:
    """Serve until told to stop."""
    args = _parser().parse_args(argv)
    options = Options(
        latency=args.latency,
        slow_fraction=args.slow_fraction,
        slow_factor=args.slow_factor,
        pad_bytes=args.pad_bytes,
        turn_bytes=args.turn_bytes,
        tool_turns=args.tool_turns,
        vary_by_key=args.vary_by_key,
        seed=args.seed,
    )
    model = ScriptedModel(options, host=args.host, port=args.port)
    _run(_serve(model, with_parent=args.with_parent))


def _parser() -> argparse.ArgumentParser:
    p = argparse.ArgumentParser(prog="python -m rollstream.scripted", description="A scripted model server. Not a model.")
    p.add_argument("--host", default="127.0.0.1")
    p.add_argument("--port", type=int, default=0, help="0 takes a free one")
    p.add_argument(
        "--latency", type=Latency.parse, default=Latency(), help="0.5, uniform:A:B, exponential:MEAN, lognormal:MEDIAN:SIGMA"
    )
    p.add_argument("--slow-fraction", type=float, default=0.0)
    p.add_argument("--slow-factor", type=float, default=100.0)
    p.add_argument("--pad-bytes", type=int, default=0, help="filler in the final message")
    p.add_argument("--turn-bytes", type=int, default=0, help="filler in each turn that calls tools")
    p.add_argument("--tool-turns", type=int, default=None, help="turns with tool calls; one per tool by default")
    p.add_argument("--vary-by-key", action="store_true", help="rollouts of one task differ")
    p.add_argument("--seed", type=int, default=0)
    p.add_argument("--with-parent", action="store_true", help="stop when standard input ends")
    return p


async def _serve(model: ScriptedModel, *, with_parent: bool) -> None:
    loop = asyncio.get_running_loop()
    stop = asyncio.Event()
    for sign in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(sign, stop.set)
    async with model:
        line = {"port": model.port, "base_url": model.base_url, "model": "scripted", "url": model.url}
        sys.stdout.write(orjson.dumps(line).decode() + "\n")
        sys.stdout.flush()
        if with_parent:
            await loop.connect_read_pipe(lambda: _Parent(stop), sys.stdin)
        await stop.wait()


class _Parent(asyncio.Protocol):
    """Standard input: its end is the parent's."""

    def __init__(self, stop: asyncio.Event) -> None:
        self._stop = stop

    def connection_lost(self, exc: Exception | None) -> None:  # noqa: ARG002
        self._stop.set()


def _run(main: Coroutine[Any, Any, None]) -> None:
    try:
        import uvloop
    except ImportError:  # there is none for Windows
        asyncio.run(main)
    else:
        uvloop.run(main)


if __name__ == "__main__":
    main()
