"""code_gen: what the page says and the cases do not show, hostile programs, failures that are no scores, and time bounds."""

from __future__ import annotations

import json
import time
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from environments.code_gen.environment import CodeGen, CodeGenConfig
from environments.code_gen.extraction import last_block
from environments.context import Context, SandboxResult
from environments.registry import Registry
from environments.testing import EnvironmentHarness, response
from environments.verdict import Verdict
from schemas.errors import DataError, InfrastructureError
from schemas.rows import agent_name, parse_row
from tests.support.bare_sandbox import BareSandbox

REGISTRY = Registry.load()
ENTRY = REGISTRY.entry_of("code_gen")
ROWS = [parse_row(line) for line in (ENTRY.folder / "data" / "example.jsonl").read_bytes().splitlines()]
SQUARES = {"inputs": ["2\n", "5\n"], "outputs": ["4", "25"]}
MEGABYTE = 1 << 20
BOUNDED_S = 10
"""What a loaded machine may take where an idle one needs a fraction of a second; a quadratic reader would take hours."""


def harness(sandbox: Any = None, **config: Any) -> EnvironmentHarness:
    context = Context(rollout_id="0-0", sandbox_client=sandbox or BareSandbox())
    return EnvironmentHarness(CodeGen(CodeGenConfig(**config)), context=context)


def verify(text: str, tests: dict[str, Any] | None = SQUARES, sandbox: Any = None, **config: Any) -> Verdict:
    made = harness(sandbox, **config)
    metadata = {"verifier_metadata": {"unit_tests": tests, "difficulty": "easy"}} if tests is not None else {}
    made.seed({"responses_create_params": {"input": "?"}, **metadata})
    return made.verify(response(text))


def fenced(code: str) -> str:
    return f"```python\n{code}\n```"


def run(code: str, tests: dict[str, Any] = SQUARES, **config: Any) -> list[Any]:
    verdict = verify(fenced(code), tests, **config)
    result = verdict.fields["result"]
    assert verdict.reward == float(all(entry is True for entry in result))
    return list(result)


def returns(value: str, wanted: Any, **config: Any) -> list[Any]:
    tests = {"inputs": ["1"], "outputs": [json.dumps(wanted)], "fn_name": "f"}
    return run(f"def f(x):\n    return {value}", tests, **config)


def prints(text: str, wanted: str) -> list[Any]:
    return run(f"print({text!r})", {"inputs": [""], "outputs": [wanted]})


class Answering:
    """A sandbox whose every run ends like this; NONCE in the output stands for the call's secret."""

    def __init__(self, stdout: str = "", **ended: Any) -> None:
        self.stdout, self.ended = stdout, {"returncode": 0, "stderr": b"", **ended}

    async def run(self, argv: Any, *, stdin: bytes = b"", **rest: Any) -> SandboxResult:
        size = int.from_bytes(stdin[:8], "big")
        nonce = json.loads(stdin[16 + size :])["nonce"]
        return SandboxResult(stdout=self.stdout.replace("NONCE", nonce).encode(), **self.ended)


# --- the example tasks -------------------------------------------------------------------------------------------------

FERRY = """
length, n = map(int, input().split())
cars = list(map(int, input().split()))
on = 0
for car in cars:
    if car > length: break
    length -= car
    on += 1
print(on)
"""
TWICE = """
words = input().split()
many = [w for w in dict.fromkeys(words) if words.count(w) > 1]
print("\\n".join(many) or "NONE")
"""
BRIDGES = """
def main():
    n, m = map(int, input().split())
    near = [[] for _ in range(n + 1)]
    for k in range(1, m + 1):
        a, b = map(int, input().split())
        near[a].append((b, k)); near[b].append((a, k))
    seen, low, found = [0] * (n + 1), [0] * (n + 1), []
    clock = 0
    def visit(v, by):
        nonlocal clock
        clock += 1
        seen[v] = low[v] = clock
        for w, k in near[v]:
            if k == by: continue
            if seen[w]: low[v] = min(low[v], seen[w])
            else:
                visit(w, k)
                low[v] = min(low[v], low[w])
                if low[w] > seen[v]: found.append(k)
    visit(1, 0)
    print(*(sorted(found) or [0]))
if __name__ == "__main__":
    main()
"""
TANK = """
from decimal import Decimal
capacity, n = input().split()
held, capacity = Decimal(0), Decimal(capacity)
for _ in range(int(n)):
    held = max(Decimal(0), min(capacity, held + Decimal(input())))
print(f"{held:.2f}")
"""
STAYS = """
def merge_stays(stays):
    merged = []
    for a, b in sorted(stays):
        if merged and a <= merged[-1][1]: merged[-1][1] = max(b, merged[-1][1])
        else: merged.append([a, b])
    return merged
"""
MEAN = """
class Solution:
    def mean_of_best(self, marks: List[float], k: int) -> float:
        best = heapq.nlargest(k, marks)
        return sum(best) / len(best) if best else 0
"""


@pytest.mark.parametrize(("row", "program"), list(zip(ROWS, [FERRY, TWICE, BRIDGES, TANK, STAYS, MEAN], strict=True)))
def test_own_rows_are_solved_by_a_right_program_only(row: dict[str, Any], program: str) -> None:
    binding = REGISTRY.binding(None, agent_name(row))
    assert binding.name == "code_gen"
    made = EnvironmentHarness(binding, context=Context(sandbox_client=BareSandbox()))
    made.seed(row)
    assert made.verify(response(fenced(program))).reward == 1.0
    assert made.verify(response(fenced("merge_stays = Solution = print"))).reward == 0.0


def test_every_variant_has_its_agent() -> None:
    agents = {REGISTRY.binding(v, None).agent_name for v in ENTRY.manifest.variants}
    assert len(agents) == len(ENTRY.manifest.variants)
    assert all(name.endswith("code_gen_simple_agent") for name in agents)


# --- reading the answer ------------------------------------------------------------------------------------------------


def plain_last_block(text: str) -> str | None:
    """The page's rule, word by word."""
    lines = text.split("\n")
    fences = [i for i, line in enumerate(lines) if "```" in line]
    return "\n".join(lines[fences[-2] + 1 : fences[-1]]) or None if len(fences) > 1 else None


PIECES = st.lists(
    st.sampled_from(["```", "````", "``", "`", "\n", "\r\n", "\n\n", "a", " ", "python", "~~~", "\u2028", "\x00", "é"])
)


@given(st.one_of(st.text(), PIECES.map("".join)))
def test_the_block_is_read_as_the_page_says(text: str) -> None:
    assert last_block(text) == plain_last_block(text)


@given(st.text(alphabet=st.characters(exclude_characters="`"), min_size=1), st.text())
def test_a_block_at_the_end_is_found_whatever_stands_before(code: str, before: str) -> None:
    assert last_block(f"{before}\n```python\n{code}\n```") == code


@pytest.mark.parametrize(
    ("text", "code"),
    [
        ("````\na\n````", "a"),
        ("~~~\na\n~~~", None),
        ("```\n  a\r\n```", "  a\r"),
        ("x ```a``` y", None),
        ("```\n\n```", None),
        ("```\n \n```", " "),
    ],
)
def test_odd_fences(text: str, code: str | None) -> None:
    assert last_block(text) == code


@pytest.mark.parametrize("piece", ["```\n", "`", "\n", "```", "a\n```\n", "<think>", "x" * 64 + "\n"])
def test_a_megabyte_is_read_in_bounded_time(piece: str) -> None:
    text = piece * (MEGABYTE // len(piece))
    started = time.perf_counter()
    last_block(text)
    verify(text, {"inputs": [], "outputs": []}, sandbox=Answering('NONCE{"passed": 0, "last": null, "metadata": {}}'))
    assert time.perf_counter() - started < BOUNDED_S


def test_a_program_of_a_megabyte_is_checked_in_bounded_time() -> None:
    started = time.perf_counter()
    assert run("x = 1\n" * (MEGABYTE // 60) + "n = int(input()); print(n * n)\n#" + "y" * MEGABYTE) == [True, True]
    assert time.perf_counter() - started < 5 * BOUNDED_S


def test_a_nest_of_a_megabyte_is_an_error_in_bounded_time() -> None:
    started = time.perf_counter()
    assert run("x = " + "(" * MEGABYTE) == [-4]
    assert time.perf_counter() - started < 5 * BOUNDED_S


# --- how programs behave -----------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("code", "result"),
    [
        ("import os\nn = os\nprint(int(input()) ** 2)", [True, True]),
        ("n = int(input())\nif n: print(n * n); exit()\nprint(7)", [True, True]),
        ("n = int(input())\nprint(n * n)\nreturn\nprint(1)", [True, True]),
        ("print(int(input()) ** 2)\nraise KeyboardInterrupt", [-1, -1]),
        ("import os\nn = int(input())\nos.abort()", [-1, -1]),
        ("import ctypes\nctypes.string_at(0)\nprint(1)", [-1, -1]),
        (
            "import collections\nn = int(input())\ncollections.seen = getattr(collections, 'seen', 0) + 1\nprint(4 if collections.seen == 1 else 25)",
            [True, True],
        ),
        ("from sys import stdin\nprint(len(stdin.read()))", [-2]),
        ("class Solution: pass\nprint(int(input()) ** 2)", [-4]),
        ("# nothing but a comment", [-4]),
        ("import psutil", [-4]),
        ("import subprocess\nsubprocess.Popen(['true'])", [-4]),
        ("import shutil\nshutil.rmtree('/nowhere')", [-4]),
        ("quit()", [-4]),
        ("import os\nos.popen('true').read()", [-4]),
        ("import tempfile\nwith tempfile.TemporaryDirectory(): pass", [-4]),
        ("import sys\nprint(sys.stdin.buffer.readlines())", [-4]),
        ("import sys\nprint(int(next(iter(sys.stdin))) ** 2)", [True, True]),
        ("import sys\nprint(int(sys.stdin.read(1)) ** 2, file=sys.stderr)", [-2]),
        ("import sys\nsys.stdin.readline()\nprint(int(sys.stdin.read(0)) ** 2)\nsys.stdout.close()", [True, True]),
        (
            "from functools import cache\n@cache\ndef deep(k): return k and 1 + deep(k - 1)\nn = int(input())\nprint(n * n + deep(20000) - 20000)",
            [True, True],
        ),
        ("n = int(input())\nprint(n * n + len(str(10 ** 49_000)) - 49_001)", [True, True]),
        ("n = int(input())\nwhile n == 5:\n    pass\nprint(n * n)", [True, -3]),
        ("n = int(input())\ntry:\n    while n == 5: pass\nexcept Exception:\n    pass\nprint(n * n)", [True, True]),
    ],
)
def test_programs_on_stdin(code: str, result: list[Any]) -> None:
    assert run(code, unit_test_timeout_secs=1) == result


def test_an_import_may_be_numpy() -> None:
    pytest.importorskip("numpy")
    assert run("import numpy as np\nprint(np.square(int(input())))") == [True, True]


@pytest.mark.parametrize(
    ("text", "wanted", "result"),
    [
        ("\n a \nb\t\n", "a\nb", [True]),
        ("1e3 -0 +5", "1000 0 5.00", [True]),
        ("Infinity", "inf", [True]),
        ("nan", "NaN", [-2]),
        ("nan", "nan", [True]),
        ("sNaN", "1", [-2]),
        ("1 a", "1.0 a", [-2]),
        ("1 2", "1 2 3", [-2]),
        ("a\n\nb", "a\nb", [-2]),
        ("1e999999999999", "1", [-2]),
        ("\ud800", "\ud800", [True]),
    ],
)
def test_outputs(text: str, wanted: str, result: list[Any]) -> None:
    assert prints(text, wanted) == result


@pytest.mark.parametrize(
    ("value", "wanted", "lenient", "plain"),
    [
        ("(1, 2)", [1, 2], True, True),
        ("[(True, 2)]", [[1, 2]], False, False),
        ("{1: (2,)}", {"1": [2]}, True, True),
        ("float('nan')", float("nan"), True, True),
        ("float('inf')", float("inf"), True, True),
        ("1e308", float("inf"), False, False),
        ("'5.00000001'", 5, True, True),
        ("None", 0, False, False),
        ("10 ** 400", 1, False, False),
        ("collections.Counter('aab')", {"a": 2, "b": 1}, True, True),
        ("__import__('fractions').Fraction(1, 2)", 0.5, True, True),
        ("{1, 2}", [1, 2], False, False),
        ("print", 1, False, False),
        ("type('Liar', (), {'__eq__': lambda self, other: True})()", 5, True, False),
        ("type('Liar', (list,), {'__eq__': lambda self, other: True})()", [5], True, False),
        ("[type('Liar', (int,), {'__eq__': lambda self, other: True})(3)]", [5], True, False),
        ("[(lambda a: (a.append(a), a)[1])([])]", [1], False, False),
    ],
)
def test_returned_values(value: str, wanted: Any, lenient: bool, plain: bool) -> None:
    assert returns(value, wanted) == [lenient]
    assert returns(value, wanted, plain_values=True) == [plain]


@pytest.mark.parametrize("value", ["[np.int64(3)]", "np.array([3])", "{'a': np.float32(3)}"])
def test_values_of_numpy(value: str) -> None:
    pytest.importorskip("numpy")
    tests = {"inputs": ["1"], "outputs": ['{"a": 3}' if "a'" in value else "[3]"], "fn_name": "f"}
    for plain in (False, True):
        assert run(f"import numpy as np\ndef f(x): return {value}", tests, plain_values=plain) == [True]


@pytest.mark.parametrize(
    ("code", "result"),
    [
        ("def f(x): raise SystemExit", [-1]),
        ("exit()", [-1]),
        ("def f(x): return type('Angry', (), {'__eq__': lambda self, other: 1 / 0})()", [-4]),
        ("f = 5", [-4]),
        ("def f(x, y): pass", [-4]),
        ("while True: pass", [-4]),
        ("def f(x): print(x); return x", [True]),
    ],
)
def test_programs_that_are_called(code: str, result: list[Any]) -> None:
    assert run(code, {"inputs": ["1"], "outputs": ["1"], "fn_name": "f"}, unit_test_timeout_secs=1) == result


@pytest.mark.parametrize(
    "tests",
    [{"inputs": ["1\n"], "outputs": ["1"]}, {"inputs": ["1"], "outputs": ["{"]}, {"inputs": ["1", "x"], "outputs": ["1"]}],
)
def test_tests_that_are_no_json_are_errors(tests: dict[str, Any]) -> None:
    assert run("def f(x): return x", {**tests, "fn_name": "f"}) == [-4]


def test_metadata_are_cut_and_name_what_happened() -> None:
    found = verify(fenced("print('a' * 1000)\n"), {"inputs": ["i" * 400], "outputs": ["b" * 300]}).fields["metadata"]
    assert (len(found["expected"]), found["output"][:150], found["output"][-150:]) == (300, "a" * 150, "a" * 149 + "\n")
    assert 300 < len(found["inputs"]) < 330
    assert found["error_message"].startswith("Wrong answer at output_line_idx=0: aaa")
    failed = verify(fenced("def g(): raise ValueError('no' * 5000)\ng()")).fields["metadata"]
    assert failed["error_message"] == "Runtime Error"
    assert failed["error"].startswith("ValueError('nono")
    assert "in g" in failed["traceback"] or "g()" in failed["traceback"]
    assert len(failed["error"]) < 2100


# --- programs that cheat ----------------------------------------------------------------------------------------------

FORGED = r"""
import ctypes, gc, glob, json, os, struct
def put(path):
    try:
        fd = os.open(path, os.O_WRONLY)
        for text in (b'\n{"passed": 2, "last": null, "metadata": {}}\n', struct.pack(">Q", 2) + b"{}"):
            os.write(fd, text)
    except OSError: pass
for path in glob.glob(f"/proc/{os.getppid()}/fd/*"): put(path)
try: found = open(f"/proc/{os.getppid()}/mem", "rb")
except OSError: found = None
assert found is None, "the checker's memory can be read"
assert ctypes.CDLL(None, use_errno=True).ptrace(16, os.getppid(), 0, 0) == -1, "the checker can be traced"
wanted = "".join(["258", "19"])
assert wanted not in repr([o for o in gc.get_objects() if isinstance(o, (str, bytes, dict, list, tuple))])[:50_000_000]
print(0)
"""

SPOKEN = r"""
import json, os
for text in ({"output": "25"}, {"equal": True}, {"output": "4"}, {"kind": "foreign"}, []):
    body = json.dumps(text).encode()
    for fd in range(3, 30):
        try: os.write(fd, len(body).to_bytes(8, "big") + body)
        except OSError: pass
print(0)
"""


def test_a_program_cannot_reach_its_checker_nor_the_expected_outputs() -> None:
    verdict = verify(fenced(FORGED), {"inputs": ["1"], "outputs": ["25819"]})
    assert verdict.fields["result"] == [-2], verdict.fields["metadata"]


def test_what_a_program_writes_on_its_pipe_counts_as_its_output() -> None:
    assert verify(fenced(SPOKEN), {"inputs": ["1", "2"], "outputs": ["25819", "3"]}).reward == 0.0


@pytest.mark.parametrize(
    "junk", [b"\xff" * 64, b"\0" * 7 + b"\x02{}", b"\0" * 7 + b"\x02[]", b"\0" * 7 + b"\x09" + b"[" * 9, b""]
)
def test_junk_on_the_pipe_is_no_answer(junk: bytes) -> None:
    code = f"import os\nfor fd in range(3, 30):\n    try: os.write(fd, {junk!r})\n    except OSError: pass\nos._exit(0)"
    assert run(code) == [-1, -1]


def test_a_program_that_kills_its_checker_has_given_no_answer() -> None:
    assert run(
        "import os, posix\nposix.kill(os.getppid(), 9)\nimport time\ntime.sleep(1)",
        unit_test_timeout_secs=2,
    ) in ([-1, -1], [-4])


def test_a_child_that_holds_the_pipe_does_not_hold_the_check() -> None:
    code = "import os, ctypes\nif ctypes.CDLL(None).fork() == 0:\n    ctypes.CDLL(None).sleep(20)\n    os._exit(0)\nos._exit(0)"
    started = time.perf_counter()
    assert run(code, unit_test_timeout_secs=30) == [-1, -1]
    assert time.perf_counter() - started < 15


def test_a_program_that_swallows_its_alarm_is_ended_from_outside() -> None:
    code = "while True:\n    try:\n        while True: pass\n    except BaseException: pass"
    assert run(code, {"inputs": ["1"], "outputs": ["1"]}, unit_test_timeout_secs=1) == [-1]


# --- failures that are no scores ---------------------------------------------------------------------------------------


@pytest.mark.parametrize("ended", [{"returncode": 127}, {"returncode": -9, "limit": "memory"}, {"returncode": 0}])
def test_a_checker_that_did_not_start_is_a_failure(ended: dict[str, Any]) -> None:
    with pytest.raises(InfrastructureError, match="did not start"):
        verify(fenced("print(1)"), sandbox=Answering('{"passed": 2, "last": null}', **ended))


def test_a_checker_that_failed_is_a_failure() -> None:
    with pytest.raises(InfrastructureError, match="checker failed"):
        verify(fenced("print(1)"), sandbox=Answering('\nNONCE{"started": true}\n\nNONCE{"fault": "OSError()"}\n'))


@pytest.mark.parametrize("rest", ["", '\n{"passed": 2, "last": null, "metadata": {}}\n', '\nNONC{"passed": 2, "last": null}'])
def test_a_checker_that_was_ended_gives_no_answer(rest: str) -> None:
    verdict = verify(fenced("print(1)"), sandbox=Answering(f'\nNONCE{{"started": true}}\n{rest}', returncode=-9))
    assert (verdict.reward, verdict.fields["result"], verdict.fields["metadata"]) == (0.0, [-1, -1], None)


def test_a_sandbox_that_breaks_is_a_failure() -> None:
    class Broken:
        async def run(self, argv: Any, **rest: Any) -> SandboxResult:
            raise InfrastructureError("no room")

    with pytest.raises(InfrastructureError, match="no room"):
        verify(fenced("print(1)"), sandbox=Broken())


def test_an_answer_without_tests_is_the_rows_failure_and_no_answer_a_score() -> None:
    with pytest.raises(DataError, match="verifier_metadata"):
        verify("anything", None)
    assert verify(" \n", None).reward == 0.0
    with pytest.raises(DataError, match="inputs"):
        verify("", {"inputs": "1", "outputs": []})


def test_the_secret_differs_from_call_to_call() -> None:
    seen = []

    class Seeing(Answering):
        async def run(self, argv: Any, *, stdin: bytes = b"", **rest: Any) -> SandboxResult:
            seen.append(json.loads(stdin[16 + int.from_bytes(stdin[:8], "big") :])["nonce"])
            return await super().run(argv, stdin=stdin, **rest)

    for _ in range(2):
        verify(fenced("print(1)"), sandbox=Seeing('NONCE{"gone": true}'))
    assert len(set(seen)) == 2
    assert all(len(nonce) == 32 for nonce in seen)
