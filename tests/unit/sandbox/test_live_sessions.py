"""Live sessions in a real sandbox: found again, kept apart, bounded, ended, rebuilt; nothing that code does forges an answer."""

import asyncio
import contextlib
import itertools
import json

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from support.pipeline import until

from environments.context import Limits
from schemas.errors import CapacityError, InfrastructureError, RolloutTimeout, SessionEnded
from services.sandbox.choice import Chosen
from services.sandbox.options import Options
from services.sandbox.session_limits import SessionLimits
from services.sandbox.sessions import LiveSessions, Upkeep

DRIVER = """
names = {}

def execute(code):
    try:
        try:
            return {"value": str(eval(code, names))}
        except SyntaxError:
            exec(code, names)
            return {"value": None}
    except BaseException as error:
        return {"error": repr(error)}
"""
LIMITS = Limits(memory=1 << 29, processes=16)


class Counting:
    """The machine's sandbox, and how many of its programs are there at a time."""

    def __init__(self):
        self.inner = Chosen(Options(spare=0))
        self.started = self.now = self.most = 0

    async def launch(self, launch):
        program = await self.inner.launch(launch)
        self.started += 1
        self.now += 1
        self.most = max(self.most, self.now)
        return Counted(program, self)


class Counted:
    def __init__(self, program, launcher):
        self._program, self._launcher, self._ended = program, launcher, False

    def __getattr__(self, name):
        return getattr(self._program, name)

    async def close(self):
        await self._program.close()
        self._launcher.now -= not self._ended
        self._ended = True


@contextlib.asynccontextmanager
async def opened(**bounds):
    launcher = Counting()
    sessions = LiveSessions(launcher, SessionLimits(**bounds))
    try:
        yield sessions
    finally:
        await sessions.end_all()
        assert launcher.now == 0
        await launcher.inner.close()


@pytest.fixture
async def sessions():
    async with opened() as found:
        yield found


async def run(sessions, rollout, *codes, journal=(), timeout_s=20.0):
    session = await sessions.get(rollout, DRIVER, journal=journal, limits=LIMITS)
    return [await session.execute(code, timeout_s=timeout_s) for code in codes]


async def test_a_rollout_finds_its_variables_again_and_not_those_of_another(sessions):
    assert await run(sessions, "a", "x = 41") == [{"value": None}]
    assert await run(sessions, "b", "x = 1") == [{"value": None}]
    assert await run(sessions, "a", "x + 1", journal=["x = 41"]) == [{"value": "42"}]
    assert await run(sessions, "b", "x", journal=["x = 1"]) == [{"value": "1"}]
    assert sessions._launcher.started == 2


async def test_sessions_see_neither_each_others_files_nor_processes(sessions):
    await run(sessions, "a", "open('mine', 'w').write('secret')")
    listing = "__import__('os').listdir('.')"
    seen = await run(sessions, "b", listing, "len([p for p in __import__('os').listdir('/proc') if p.isdigit()])")
    assert "mine" not in seen[0]["value"]
    if (await sessions._launcher.inner.backend()).name == "bwrap":
        assert int(seen[1]["value"]) <= 4


async def test_another_journal_another_driver_or_other_limits_mean_a_new_process(sessions):
    await run(sessions, "a", "x = 1")
    assert await run(sessions, "a", "x", journal=["x = 7"]) == [{"value": "7"}]
    assert (await run(sessions, "a", "x"))[0]["error"].startswith("NameError")
    other = await sessions.get("a", DRIVER + "\nnames['x'] = 9\n", limits=LIMITS)
    assert await other.execute("x", timeout_s=20) == {"value": "9"}
    assert sessions.count == 1
    assert sessions._launcher.started == 4


FORGERIES = [
    "__import__('os').write(3, b'0000000002 {}\\n')",
    "[__import__('os').write(fd, b'garbage') for fd in map(int, __import__('os').listdir('/proc/self/fd')) if fd > 2]",
    "open('/proc/%d/mem' % __import__('os').getppid(), 'r+b')",
    "__import__('os').listdir('/proc/%d/fd' % __import__('os').getppid())",
    "__import__('os').fork() and None",
    'print(\'0000000040 {"number": 2, "reply": {"value": "99"}}\', flush=True)',
]
FORGED_FRAME = (
    "def say(body):\n    for fd in range(3, 40):\n        try:\n            __import__('os').write(fd, body)\n"
    "        except OSError:\n            pass\n"
    "say(b'%010d ' % {size} + {body!r} + b'\\n')"
)


def forged(value):
    body = json.dumps(value).encode()
    return FORGED_FRAME.format(size=len(body), body=body)


@pytest.mark.parametrize(
    "code",
    [
        *FORGERIES,
        forged({"number": 2, "reply": {"value": "99"}}),
        forged({"mark": "0" * 32, "reply": {"value": "99"}}),
        forged([1]),
    ],
)
async def test_what_code_writes_is_never_taken_for_an_answer(sessions, code):
    """Whatever it tries, the next call gets its own answer: from this process, or from one that was rebuilt."""
    session = await sessions.get("a", DRIVER, limits=LIMITS)
    await session.execute("x = 5", timeout_s=20)
    with contextlib.suppress(SessionEnded):
        await session.execute(code, timeout_s=20)
    with contextlib.suppress(SessionEnded):
        assert await session.execute("x * 2", timeout_s=20) == {"value": "10"}
    assert await run(sessions, "a", "x * 3", journal=["x = 5"]) == [{"value": "15"}]


async def test_a_stale_answer_is_not_the_next_calls(sessions):
    """A copy of the process that answers late, and a thread that floods the line: both carry old marks."""
    late = (
        "import os, threading, time\npid = os.fork()\nif pid == 0:\n    time.sleep(0.2)\n"
        '    os.write(4, b\'0000000052 {"mark": "0123456789abcdef0123456789abcdef", "reply": {}}\\n\')\n    os._exit(0)'
    )
    session = await sessions.get("a", DRIVER, limits=LIMITS)
    await session.execute(late, timeout_s=20)
    for number in range(20):
        try:
            assert await session.execute(f"{number} + 1", timeout_s=20) == {"value": str(number + 1)}
        except SessionEnded:
            break


async def test_a_call_that_runs_over_its_time_is_killed_and_its_process_is_gone(sessions):
    (pid,) = await run(sessions, "a", "__import__('os').getpid()")
    with pytest.raises(RolloutTimeout, match=r"0\.5 s"):
        await run(sessions, "a", "while True: pass", timeout_s=0.5, journal=["__import__('os').getpid()"])
    assert pid["value"]
    assert sessions.count == 0
    assert sessions._launcher.now == 0
    assert await run(sessions, "a", "1 + 1") == [{"value": "2"}]


async def test_a_cancelled_call_ends_its_process(sessions):
    session = await sessions.get("a", DRIVER, limits=LIMITS)
    call = asyncio.create_task(session.execute("while True: pass", timeout_s=60))
    for _ in range(20):
        await asyncio.sleep(0)
    call.cancel()
    with pytest.raises(asyncio.CancelledError):
        await call
    assert sessions.count == sessions._launcher.now == 0


@pytest.mark.parametrize(
    ("code", "why"),
    [
        ("__import__('os')._exit(3)", "status 3"),
        ("__import__('os').abort()", "signal 6"),
        ("__import__('os').kill(__import__('os').getppid(), 9)", "gone"),
        ("[__import__('os').write(1, b'x' * 65536) for _ in range(4096)]", "more output"),
    ],
)
async def test_code_that_ends_its_own_process_says_so_and_the_next_call_has_what_went_before(sessions, code, why):
    session = await sessions.get("a", DRIVER, limits=Limits(memory=1 << 29, output=1 << 16))
    await session.execute("x = 5", timeout_s=20)
    with pytest.raises(SessionEnded, match=why):
        await session.execute(code, timeout_s=20)
    assert sessions.count == 0
    assert await session.execute("x", timeout_s=20) == {"value": "5"}


async def test_no_more_sessions_than_the_limit_and_the_longest_unused_makes_room():
    async with opened(limit=3) as sessions:
        found = [await sessions.get(str(n), DRIVER, limits=LIMITS) for n in range(3)]
        for session in found:
            await session.execute("x = 1", timeout_s=20)
        await found[0].execute("x = 2", timeout_s=20)
        await run(sessions, "new", "x = 9")
        assert sessions.count == sessions._launcher.most == 3
        assert set(sessions._live) == {"0", "2", "new"}
        assert await found[1].execute("x", timeout_s=20) == {"value": "1"}  # rebuilt: its journal went along
        many = [run(sessions, f"m{n}", "x = 1", "x + 1") for n in range(8)]
        assert await asyncio.gather(*many) == [[{"value": None}, {"value": "2"}]] * 8
        assert sessions._launcher.most == 3


async def test_where_all_are_at_work_the_newcomer_is_told():
    async with opened(limit=1, wait_s=0.2) as sessions:
        session = await sessions.get("a", DRIVER, limits=LIMITS)
        busy = asyncio.create_task(session.execute("while True: pass", timeout_s=60))
        for _ in range(20):
            await asyncio.sleep(0)
        assert sessions._busy("a")
        with pytest.raises(CapacityError, match=r"sessions\.limit"):
            await sessions.get("b", DRIVER, limits=LIMITS)
        busy.cancel()
        with pytest.raises(asyncio.CancelledError):
            await busy
        assert await run(sessions, "b", "1") == [{"value": "1"}]


async def test_idle_sessions_are_ended_and_busy_ones_are_not():
    async with opened(idle_s=10) as sessions:
        await run(sessions, "a", "x = 1")
        now = asyncio.get_running_loop().time()
        await sessions.sweep(now + 9)
        assert sessions.count == 1
        assert sessions.next_sweep == pytest.approx(now + 10, abs=1)
        async with sessions._turn("a"):
            await sessions.sweep(now + 11)
            assert sessions.count == 1
        await sessions.sweep(now + 11)
        assert sessions.count == sessions._launcher.now == 0
        assert await run(sessions, "a", "x", journal=["x = 1"]) == [{"value": "1"}]


async def test_upkeep_sweeps_by_itself_and_ends_all_with_the_worker():
    async with opened(idle_s=0.01) as sessions:
        upkeep = Upkeep(sessions)
        await run(sessions, "a", "x = 1")
        await upkeep.start()
        await until(lambda: not sessions.count, "the idle session has ended")
        await upkeep.close()
    async with opened() as sessions:
        upkeep = Upkeep(sessions)
        await upkeep.start()
        await run(sessions, "a", "x = 1")
        await upkeep.close()
        assert sessions.count == sessions._launcher.now == 0


async def test_a_closed_session_is_gone_and_closing_twice_is_nothing(sessions):
    await run(sessions, "a", "x = 1")
    await sessions.close("a")
    await sessions.close("a")
    assert sessions.count == sessions._launcher.now == 0


async def test_a_rebuild_is_bounded_in_time():
    async with opened(rebuild_s=0.5) as sessions:
        with pytest.raises(RolloutTimeout, match=r"sessions\.rebuild_s"):
            await sessions.get("a", DRIVER, journal=["x = 1", "while True: pass"], limits=LIMITS)
        assert sessions.count == sessions._launcher.now == 0


async def test_calls_of_one_rollout_run_one_after_another(sessions):
    session = await sessions.get("a", DRIVER, limits=LIMITS)
    await session.execute("x = 0", timeout_s=20)
    both = [session.execute("x = x + 1", timeout_s=20) for _ in range(10)]
    await asyncio.gather(*both)
    assert await session.execute("x", timeout_s=20) == {"value": "10"}


async def test_a_driver_that_cannot_be_started_is_the_sessions_end(sessions):
    session = await sessions.get("a", "raise RuntimeError('no')", limits=LIMITS)
    with pytest.raises(SessionEnded, match="status 1"):
        await session.execute("1", timeout_s=20)


async def test_a_sandbox_that_breaks_is_no_fault_of_the_code():
    class Broken:
        async def launch(self, launch):
            raise InfrastructureError("no place")

    sessions = LiveSessions(Broken())
    with pytest.raises(InfrastructureError, match="no place"):
        await sessions.get("a", DRIVER)
    assert sessions.count == 0


CODES = st.lists(
    st.one_of(
        st.builds("{} = {}".format, st.sampled_from("abc"), st.integers(-9, 9)),
        st.builds("{} = {} + {}".format, st.sampled_from("abc"), st.sampled_from("abc"), st.integers(-9, 9)),
        st.builds("log = (globals().get('log') or []) + [{}]".format, st.sampled_from("abc")),
        st.builds("s = {!r}".format, st.text(st.characters(exclude_categories=()), max_size=8)),
        st.just("import random; r = random.random()"),
        st.just("1/0"),
    ),
    max_size=8,
)
SHOWN = "sorted((k, repr(v)) for k, v in list(globals().items()) if k in ('a', 'b', 'c', 'log', 's', 'r'))"
SEEDED = f"import random\nrandom.seed(ROLLOUT)\n{DRIVER}"


def test_a_session_that_is_rebuilt_from_its_journal_equals_the_original():
    """On another worker, and also when only the first codes were executed there before."""
    numbers = itertools.count()

    async def compare(codes, cut, first, second):
        rollout = str(next(numbers))
        one = await first.get(rollout, SEEDED, limits=LIMITS)
        replies = [await one.execute(code, timeout_s=20) for code in codes]
        original = await one.execute(SHOWN, timeout_s=20)
        part = await second.get(rollout, SEEDED, journal=codes[:cut], limits=LIMITS)
        assert [await part.execute(code, timeout_s=20) for code in codes[cut:]] == replies[cut:]
        assert await part.execute(SHOWN, timeout_s=20) == original
        again = await second.get(rollout, SEEDED, journal=codes, limits=LIMITS)
        assert await again.execute(SHOWN, timeout_s=20) == original

    with asyncio.Runner() as runner:
        workers = contextlib.AsyncExitStack()
        first, second = (runner.run(workers.enter_async_context(opened(limit=2))) for _ in range(2))

        @given(codes=CODES, cut=st.integers(0, 8))
        @settings(max_examples=15, deadline=None)
        def holds(codes, cut):
            runner.run(compare(codes, cut, first, second))

        holds()
        runner.run(workers.aclose())
