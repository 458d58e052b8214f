"""The interpreter behind `execute_python`: what the page says and the cases do not show."""

from __future__ import annotations

import ast
import contextlib
import json
import re
import signal
import sys

import pytest
from hypothesis import given
from hypothesis import strategies as st

from environments.common import extras
from environments.common.python_driver import Inlining, Interpreter, Kept, failed
from environments.common.python_session import PACKAGES, Rules
from environments.extras import OURS, install_command
from environments.math_with_code.environment import BUILTINS
from environments.newton_bench.rules import BUILTINS as NEWTON
from environments.newton_bench.rules import REFUSED
from schemas.errors import InfrastructureError


@contextlib.contextmanager
def interpreter(**rules):
    """One in this process, whose alarm handler and random state are put back afterwards."""
    import random

    handler, state = signal.getsignal(signal.SIGALRM), random.getstate()
    known = {"names": list(BUILTINS), "modules": {}, "limit_s": 5.0, "output": 1_000, "tracebacks": False, "refused": []}
    try:
        yield Interpreter("0-0", **{**known, **rules})
    finally:
        signal.signal(signal.SIGALRM, handler)
        random.setstate(state)


def said(*codes, **rules):
    with interpreter(**rules) as python:
        return [python.execute(code) for code in codes]


def result(*codes, **rules):
    return said(*codes, **rules)[-1]["result"]


@given(st.text(st.characters(exclude_categories=()), max_size=80))
def test_any_text_is_answered_with_the_five_keys(code):
    (reply,) = said(code)
    assert list(reply) == ["success", "stdout", "stderr", "error_message", "result"]
    assert json.loads(json.dumps(reply)) == reply


@given(st.lists(st.text(max_size=30), max_size=12), st.integers(2, 40))
def test_text_beyond_the_limit_keeps_its_ends(parts, limit):
    kept, whole = Kept(limit), "".join(parts)
    for part in parts:
        kept.write(part)
    value, half = kept.value(), limit // 2
    if len(whole) <= 2 * half:
        assert value == whole
    else:
        assert value.startswith(whole[:half])
        assert value.endswith(whole[-half:])
        assert f"[{len(whole) - 2 * half} characters left out]" in value


COMPREHENSIONS = [
    "[k * i for i in range(3)]",
    "{k + i for i in range(3) if i < k}",
    "{i: k for i in range(2)}",
    "[[k + i + j for j in range(k)] for i in range(2)]",
    "[i for i in range(k)]",
    "[k for k in range(2)] + [k]",
    "[(i, k) for i in (j for j in range(k))]",
    "[a + b + k for a, b in [(1, 2)]]",
    "[k for _ in range(2) for k in range(2)]",
    "[y for i in range(3) if (y := i + k)]",
    "(lambda n=[k for _ in range(1)]: n)()",
]


@pytest.mark.parametrize("code", COMPREHENSIONS)
def test_comprehensions_see_the_top_level(code):
    """As a plain script does, where locals and globals are one."""
    assert result("k = 3", code) == str(eval(code, {"k": 3}))


@pytest.mark.parametrize(
    "code",
    [
        "sum(k * i for i in range(3))",
        "(lambda: k)()",
        "[(lambda: k)() for i in range(1)]",
        "[sum(k for _ in 'a') for i in 'a']",
    ],
)
def test_functions_lambdas_and_generators_do_not(code):
    assert said("k = 3", code)[-1]["error_message"] == "name 'k' is not defined"


NAMES = st.sampled_from("kij")
EXPRESSIONS = st.recursive(
    NAMES | st.integers(0, 3).map(str),
    lambda e: st.one_of(
        st.builds("[{} for {} in (1, 2)]".format, e, NAMES),
        st.builds("[{} for {} in (1, 2) for {} in (3, 4)]".format, e, NAMES, NAMES),
        st.builds("{{{}: {} for {} in (1, 2)}}".format, NAMES, e, NAMES),
        st.builds("({}, {})".format, e, e),
    ),
    max_leaves=6,
)


@given(EXPRESSIONS)
def test_nested_comprehensions_bind_as_python_binds(code):
    with contextlib.suppress(TypeError):  # a list as a key
        wanted = str(eval(code, {"k": 10, "i": 20, "j": 30}))
        assert result("k = 10\ni = 20\nj = 30", f"({code})") == wanted


def test_the_rewriting_leaves_code_without_comprehensions_alone():
    code = "def f(a=1):\n    return [a for b in c]\nx = lambda: [y for z in w]\nfor i in j:\n    k(i)\n"
    assert ast.dump(Inlining().visit(ast.parse(code))) == ast.dump(ast.parse(code))


def test_an_expression_of_thousands_of_terms_is_computed():
    terms = "+".join(["1"] * 900)
    assert result(f"x = [{terms} for _ in range(1)]", "x") == "[900]"


@pytest.mark.parametrize("line", ["print(1)", "printed", "format_", "if_x", "trying", "classes"])
def test_last_lines_that_begin_like_statements_are_not_evaluated(line):
    assert result(f"printed = format_ = if_x = trying = classes = 1\n{line}") is None


def test_what_raises_loses_its_output_and_keeps_its_variables():
    reply = said("x = 1\nprint('a')\n1/0", "x")
    assert reply[0] == failed("division by zero")
    assert reply[1]["result"] == "1"


@pytest.mark.parametrize(
    "code",
    [
        "import builtins\nraise builtins.SystemExit(3)",
        "import sys\nsys.exit('bye')",
        "import builtins\nraise builtins.KeyboardInterrupt('k')",
    ],
)
def test_an_exit_is_an_error_like_any_other(code):
    reply = said(code, "1 + 1")
    assert reply[0]["success"] is False
    assert reply[0]["error_message"] in {"3", "bye", "k"}
    assert reply[1]["result"] == "2"


def test_an_exception_that_cannot_be_told_is_named():
    code = "import builtins\nclass_ = builtins.type('Odd', (builtins.Exception,), {'__str__': None})\nraise class_()"
    assert said(code)[0]["error_message"] == "Odd"


def test_the_alarm_ends_code_and_last_line_and_leaves_none_behind():
    reply = said("z = 5\nwhile True:\n    pass", "z", limit_s=0.05)
    assert reply[0]["error_message"] == "code timed-out"
    assert reply[1]["result"] == "5"
    assert said("n = [0]\ndef spin(n, r=range, x=10**9):\n    n[0] += 1\n    if n[0] > 1:\n        for _ in r(x):\n            pass\nspin(n)", limit_s=0.1)[0]["error_message"] == "code timed-out"  # fmt: skip
    assert signal.getitimer(signal.ITIMER_REAL) == (0.0, 0.0)


def test_classes_cannot_be_defined_and_names_are_missing():
    texts = [r["error_message"] for r in said("class A:\n    pass", "sorted([1])", "isinstance(1, int)", "Exception")]
    assert texts == [
        "__build_class__ not found",
        *(f"name '{n}' is not defined" for n in ("sorted", "isinstance", "Exception")),
    ]


def test_a_result_that_cannot_be_shown_is_none_and_a_long_one_is_cut():
    assert result("import builtins\nx = builtins.type('X', (), {'__str__': None})()", "x") is None
    assert len(result("'a' * 1000000")) < 1_100


def test_random_numbers_are_the_rollouts_own():
    assert result("import random", "random.random()") == result("import random", "random.random()")


def test_packages_are_imported_when_code_means_them(monkeypatch):
    with interpreter(modules={"js": "json", "np": "nowhere_at_all"}) as python:
        assert python.execute("'np' + 'x'")["error_message"] is not None
        assert python.execute("inputs = 1\ninputs")["result"] == "1"
        assert python.execute("js.dumps(1)")["result"] == "1"


@pytest.mark.parametrize(
    ("code", "pattern"),
    [
        ("import  OS", r"import\s+os"), ("import oscillator", r"import\s+os"), ("x = 'EVAL(1)'", r"eval\("),
        ("raw_input(1)", r"input\("), ("globals()", r"globals\("), ("import\tsubprocess", r"import\s+subprocess"),
    ],
)  # fmt: skip
def test_refused_code_is_not_run(code, pattern):
    wanted = f"Code contains potentially dangerous operation: {pattern}"
    assert said(code, refused=list(REFUSED), names=list(NEWTON))[0]["error_message"] == wanted


@pytest.mark.parametrize("code", ["(" * 300 + ")" * 300, "\0", "x = (1", "-" * 5_000 + "1"])
def test_code_that_cannot_be_parsed_is_a_syntax_error(code):
    assert said(code, refused=list(REFUSED))[0]["error_message"].startswith("Syntax error: ")


def test_tracebacks_follow_the_text():
    text = said("raise ValueError('v')", tracebacks=True, names=list(NEWTON))[0]["error_message"]
    assert text.startswith("v\nTraceback:\nTraceback (most recent call last):")
    assert text.endswith("ValueError: v\n")


def test_the_driver_is_one_text_that_runs_with_its_rules():
    rules = Rules(BUILTINS, 5.0, PACKAGES, refused=("'\\",))
    names = {"ROLLOUT": "0-0", "__name__": "driver"}
    handler = signal.getsignal(signal.SIGALRM)
    try:
        exec(compile(rules.driver, "driver.py", "exec", dont_inherit=True), names)
        assert names["execute"].__self__._refused == ["'\\"]
    finally:
        signal.signal(signal.SIGALRM, handler)


def test_a_missing_package_is_said_with_the_command_that_installs_it():
    with pytest.raises(
        InfrastructureError, match=f"needs nowhere_at_all, not installed here: {re.escape(install_command(OURS, 'thing'))}"
    ) as e:
        extras.require("thing", "json", "nowhere_at_all")
    assert not e.value.retryable
    extras.require("thing", "json")


def test_importing_the_environments_imports_no_package_of_theirs():
    import subprocess

    code = "import sys, environments.math_with_code.environment, environments.newton_bench.environment as e\ne.NewtonBench()\nprint([m for m in ('numpy', 'scipy', 'pandas') if m in sys.modules])"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=30, check=True)
    assert done.stdout.strip() == "[]"
