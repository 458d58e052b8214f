"""The yardstick: asyncio, aiohttp, the same rows, the same model, the same scoring and writing, and nothing else.

`python -m benchmarks.bare_loop ENVIRONMENT COUNT CONCURRENCY MODEL_URL OUTPUT` prints its figures as one JSON line.
It is written to be fast, not to be fair to us: no retries, no deadlines, no ledger, no restart.
"""

from __future__ import annotations

import asyncio
import json
import sys
from pathlib import Path
from typing import IO, Any

import aiohttp
import orjson
import uvloop

from benchmarks import usage
from benchmarks.rows import rows
from environments.context import Context
from environments.registry import Registry
from environments.response import Response


async def main(environment: str, count: int, concurrency: int, url: str, output: Path) -> None:
    binding = Registry.load().binding(environment, None)
    data = rows(environment, count)
    connector = aiohttp.TCPConnector(limit=0)
    async with aiohttp.ClientSession(connector=connector, cookie_jar=aiohttp.DummyCookieJar()) as session:
        with output.open("wb") as out:
            loop = Loop(session, f"{url}/responses", binding.environment, out)
            await loop.run(data[: min(200, count)], concurrency)
            start = usage.now()
            await loop.run(data, concurrency)
            spent = usage.now().since(start)
    print(json.dumps({"cpu_us": spent.cpu / count * 1e6, "wall_s": spent.wall, "per_s": count / spent.wall}))


class Loop:
    def __init__(self, session: aiohttp.ClientSession, url: str, environment: Any, out: IO[bytes]) -> None:
        self.session = session
        self.url = url
        self.environment = environment
        self.out = out

    async def run(self, data: list[bytes], concurrency: int) -> None:
        """All rows, `concurrency` at a time, by as many workers over one iterator."""
        pending = iter(data)

        async def work() -> None:
            for text in pending:
                await self.rollout(text)

        await asyncio.gather(*(work() for _ in range(concurrency)))

    async def rollout(self, text: bytes) -> None:
        row = orjson.loads(text)
        params = row["responses_create_params"]
        task = self.environment.Task.model_validate(row)
        context = Context()
        seed = self.environment.seed(task, context)
        items: list[Any] = []
        while True:
            reply = await self.call(params, items)
            items += reply["output"]
            calls = [i for i in reply["output"] if i["type"] == "function_call"]
            if not calls:
                break
            for call in calls:
                items.append(self.answer(call, task, seed.state, context))
        reply["output"] = items
        verdict = self.environment.verify(task, Response(reply), seed.state, context)
        line = {**row, "response": reply, "reward": verdict.reward, **verdict.fields}
        self.out.write(orjson.dumps(line) + b"\n")

    async def call(self, params: dict[str, Any], items: list[Any]) -> dict[str, Any]:
        body = orjson.dumps({**params, "input": params["input"] + items, "model": "scripted"})
        async with self.session.post(self.url, data=body, headers={"Content-Type": "application/json"}) as response:
            return orjson.loads(await response.read())

    def answer(self, call: dict[str, Any], task: Any, state: Any, context: Context) -> dict[str, Any]:
        from environments.dispatch import start_tool
        from schemas.events import ToolCall

        reply = start_tool(self.environment, ToolCall(call["call_id"], call["name"], call["arguments"]), task, state, context)
        return {"type": "function_call_output", "call_id": call["call_id"], "output": reply.output}


if __name__ == "__main__":
    environment, count, concurrency, url, output = sys.argv[1:]
    uvloop.run(main(environment, int(count), int(concurrency), url, Path(output)))
