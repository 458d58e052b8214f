"""What the front holds is bounded, and what it holds too long ends: sessions, gates, bodies, who may call."""

import asyncio

import pytest
from support.faulty import environment as faulty_environment
from support.fronts import PORT, client_of, example, fronted, message
from support.pipeline import faulty, registry

from rollstream.front.bounds import Bounds
from rollstream.front.door import Door, Paths
from rollstream.front.gate import Gate
from rollstream.front.problems import UnknownSession
from rollstream.front.sessions import Sessions, new_episode
from rollstream.scripted import ScriptedModel
from schemas.errors import CapacityError

COUNTER = "example_session_state_mgmt"


class Clock:
    now = 0.0

    def __call__(self):
        return self.now


async def test_sessions_end_when_idle_and_their_environment_is_closed():
    from support.fronts import serviced

    clock = Clock()
    before = len(faulty_environment.CLOSED)
    async with ScriptedModel() as model, serviced(model) as services:
        sessions = Sessions(10, 1 << 20, 60.0, clock)
        binding = registry().binding("faulty", None)
        kept = [sessions.begin(new_episode(services, binding, faulty()), 10) for _ in range(3)]
        clock.now = 50.0
        sessions.find(kept[1].key)
        clock.now = 61.0
        await kept[2].lock.acquire()
        sessions.sweep()
        assert len(sessions) == 2, "one was used since, one is at work"
        sessions.find(kept[2].key)
        with pytest.raises(UnknownSession, match="unused for 60 s"):
            sessions.find(kept[0].key)
        kept[2].lock.release()
        await sessions.close()
    closed = faulty_environment.CLOSED[before:]
    assert sorted(closed) == sorted(s.episode.ref.rollout_id for s in kept)


async def test_a_full_house_lets_go_of_verified_sessions_only():
    bounds = Bounds(sessions=2)
    async with fronted(COUNTER, bounds=bounds) as f:
        row = example(COUNTER)
        for _ in range(2):
            assert (await f.client.post("/seed_session", json=row)).status_code == 200
        refused = await f.client.post("/seed_session", json=row)
        assert (refused.status_code, refused.json()["error"]["class"]) == (503, "capacity")
        await f.client.post("/verify", json={**row, "response": message("x")})
        assert (await f.client.post("/seed_session", json=row)).status_code == 200
        assert (await f.status())[COUNTER]["sessions"] == 2


async def test_sessions_are_bounded_by_the_bytes_of_their_rows_too():
    row = {**example(COUNTER), "large": "x" * 3_000}
    async with fronted(COUNTER, bounds=Bounds(session_bytes=8_000)) as f:
        codes = [(await f.client.post("/seed_session", json=row)).status_code for _ in range(3)]
        assert codes == [200, 200, 503]


async def test_the_fronts_end_ends_the_sessions():
    before = len(faulty_environment.CLOSED)
    async with fronted("faulty") as f:
        await f.client.post("/seed_session", json=faulty())
    assert len(faulty_environment.CLOSED) == before + 1


async def test_a_gate_lets_nobody_wait_for_ever():
    gate = Gate("calls", 1, 5, 0.05)
    async with gate.entered():
        with pytest.raises(CapacityError, match=r"no room among 1 calls within 0\.05 s"):
            async with gate.entered():
                pass
    async with gate.entered():
        assert (gate.inside, gate.queued) == (1, 0)


async def test_a_body_that_trickles_is_cut_off_and_one_without_a_length_is_counted():
    async def trickle():
        yield b"{"
        await asyncio.sleep(30)

    async def endless():
        while True:
            yield b"x" * 10_000

    async with fronted("mcqa", bounds=Bounds(body_s=0.1, body=100_000)) as f:
        late = await f.client.post("/verify", content=trickle())
        assert (late.status_code, late.headers["connection"]) == (408, "close")
        large = await f.client.post("/verify", content=endless())
        assert large.status_code == 413


async def test_the_bodies_of_all_requests_together_are_bounded():
    held = asyncio.Event()

    async def waiting(scope, receive, send):
        await receive()
        await held.wait()
        await send({"type": "http.response.start", "status": 204, "headers": []})
        await send({"type": "http.response.body", "body": b""})

    door = Door(waiting, Paths((), ()), Bounds(buffered=1_500), local=True)
    async with client_of(door) as client:
        first = asyncio.ensure_future(client.post("/", content=b"x" * 1_000))
        await asyncio.sleep(0)
        second = await client.post("/", content=b"x" * 1_000)
        assert second.status_code == 503
        held.set()
        assert (await first).status_code == 204
        assert (await client.post("/", content=b"x" * 1_000)).status_code == 204, "what was refused is not held"


@pytest.mark.parametrize(
    ("host", "origin", "status"),
    [
        ("127.0.0.1", None, 200), ("localhost", None, 200), ("[::1]", None, 200),
        ("127.0.0.1", "http://localhost:3000", 200),
        ("evil.example", None, 421), ("127.0.0.1.evil.example", None, 421), ("", None, 421), ("a]b", None, 421),
        ("127.0.0.1", "https://evil.example", 403), ("127.0.0.1", "null", 403),
    ],
)  # fmt: skip
async def test_on_the_loopback_no_page_of_elsewhere_gets_in(host, origin, status):
    async with fronted("mcqa") as f:
        headers = {"Host": f"{host}:{PORT}" if host else "", **({"Origin": origin} if origin else {})}
        reply = await f.client.get("/live", headers=headers)
        assert reply.status_code == status


@pytest.mark.parametrize(
    ("path", "port", "found"),
    [
        ("/verify", 1, "/a/verify"), ("/verify", 2, "/b/verify"), ("/verify", 9, "/verify"), ("/verify", None, "/verify"),
        ("/b/verify", 1, "/b/verify"), ("/live", 1, "/live"), ("/", 2, "/b/"), ("/v1/responses", 2, "/b/v1/responses"),
    ],
)  # fmt: skip
def test_a_bare_path_means_the_environment_of_its_port(path, port, found):
    assert Paths(("a", "b"), ("live",), {1: "a", 2: "b"}).of(path, port) == found


def test_with_one_environment_every_port_is_its_own():
    assert Paths(("a",), ("live",), {}, "a").of("/verify", 9) == "/a/verify"
