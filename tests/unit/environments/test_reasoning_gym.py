"""reasoning_gym: what the reference's cases do not show. The library is asked for as little as possible: it takes seconds to import."""

from __future__ import annotations

import json
import re
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

import environments.reasoning_gym as package
from environments import testing
from environments.context import Context, Limits, SandboxResult
from environments.reasoning_gym.environment import ReasoningGym, ReasoningGymConfig
from environments.reasoning_gym.extraction import extract_answer
from environments.reasoning_gym.isolation import SANDBOXED
from environments.reasoning_gym.rows import categories, main
from environments.reasoning_gym.scorer import LITERALS, _root, modules, refusal
from environments.registry import Registry
from environments.testing import EnvironmentHarness, response
from schemas.errors import DataError, InfrastructureError, RolloutTimeout, VerifierError
from services.sandbox.sandbox import SandboxService

ROWS = [
    json.loads(line) for line in Path(package.__file__).with_name("data").joinpath("example.jsonl").read_text().splitlines()
]
COUNTDOWN = next(r for r in ROWS if r["metadata"]["source_dataset"] == "countdown")


def row(name: str, answer: str | None = "5", **metadata: Any) -> dict[str, Any]:
    params = {"responses_create_params": {"input": "Q?"}}
    return {**params, "question": "Q?", "answer": answer, "metadata": {"source_dataset": name, **metadata}}


# Extraction.


@pytest.mark.parametrize(
    ("text", "answer"),
    [
        ("<answer>1</answer> <answer> 2\n</answer>", "2"),
        ("<answer>1<answer>2</answer>", "1<answer>2"),
        ("\\boxed{3} <answer></answer>", ""),
        ("<answer>1</answer><answer>2", "1"),
        ("<Answer>1</Answer>", "<Answer>1</Answer>"),
        ("\\boxed{1} \\boxed{2}", "1"),
        ("\\boxed{}\\boxed{ 2 }", "2"),
        ("\\boxed{\\text{5}}", "\\text{5"),
        ("\\boxed{1", "\\boxed{1"),
        ("  all of it ", "all of it"),
        ("", ""),
    ],
)
def test_extraction(text: str, answer: str) -> None:
    assert extract_answer(text) == answer


PIECES = st.lists(
    st.sampled_from(["<answer>", "</answer>", "\\boxed{", "}", " ", "\n", "x", "é", "<"]) | st.text(max_size=3), max_size=30
)


@given(PIECES)
def test_an_answer_is_what_two_plain_expressions_find(pieces: list[str]) -> None:
    text = "".join(pieces)
    tagged = re.findall(r"<answer>(.*?)</answer>", text, re.DOTALL)
    boxed = re.search(r"\\boxed\{([^}]+)\}", text)
    assert extract_answer(text) == (tagged[-1] if tagged else boxed[1] if boxed else text).strip()


@pytest.mark.parametrize(
    "piece", ["<answer>", "</answer>", "\\boxed{", "\\boxed{}", "}", "<answer></answer>", "\\boxed{ ", " "]
)
def test_a_megabyte_is_read_in_time(piece: str) -> None:
    refusal("x")  # imports sympy, once
    begun = time.process_time()
    extract_answer(piece * ((1 << 20) // len(piece)))
    refusal(piece * ((1 << 20) // len(piece)))
    assert time.process_time() - begun < 3


# What may be evaluated.


@pytest.mark.parametrize(
    "text",
    [
        "3*x**2/2 + C",
        "-9*x**8/10 + sin(2*x)*exp(-x) + log(Abs(x))",
        "(82 + 20) * 67 - 50",
        "1.5e-3*y",
        "2.",
        "5!",
        "sqrt(2)*z_1",
        "const + x",
    ],
)
def test_arithmetic_is_evaluated(text: str) -> None:
    assert refusal(text) is None


@pytest.mark.parametrize(
    "text",
    [
        "__import__('os').system('id')",
        "open(1)",
        "eval(chr(49))",
        "x.func",
        "x . func",
        "x1.func",
        "1.5.real",
        "[x for x in range(9)]",
        "lambda x: x",
        "print(1)",
        "sympify(x)",
        "lambdify(x)",
        "getattr(x, y)",
        "ｅｖａｌ(1)",
        "x #",
        "x\\\n.func",
        "exec(x)",
        "(x)\n.func",
    ],
)
def test_programs_are_not(text: str) -> None:
    assert refusal(text) is not None


@given(st.text(max_size=40))
def test_what_is_evaluated_reaches_into_nothing(text: str) -> None:
    if refusal(text) is None:
        assert text.isascii()
        assert not set(text) & set("'\"\\#:;{}@`")
        assert "__" not in text


# Where an answer is scored.


class Boxes:
    """A sandbox that ends in one way, and keeps what it was asked."""

    def __init__(self, result: SandboxResult) -> None:
        self.result, self.limits = result, Limits()

    async def run(
        self, argv: Any, *, files: Any = None, stdin: bytes = b"", limits: Limits = Limits(), collect: Any = ()
    ) -> SandboxResult:
        self.limits, self.order = limits, json.loads(stdin)
        return self.result


def verified(task: dict[str, Any], text: str, config: ReasoningGymConfig | None = None, **clients: Any) -> Any:
    harness = EnvironmentHarness(ReasoningGym(config), context=Context(rollout_id="0-0", **clients))
    harness.seed(task)
    return harness.verify(response(text))


@pytest.mark.parametrize(
    ("result", "why"),
    [
        (SandboxResult(-9, b"", b"", limit="memory"), "memory"),
        (SandboxResult(-24, b"", b""), "cpu"),
        (SandboxResult(1, b"", b"Traceback\nMemoryError: x"), "memory"),
    ],
)
def test_what_is_killed_scores_nothing_and_says_so(result: SandboxResult, why: str) -> None:
    boxes = Boxes(result)
    verdict = verified(COUNTDOWN, "9**9**9", ReasoningGymConfig(score_cpu_s=7, score_memory_mib=300), sandbox_client=boxes)
    assert verdict.reward == 0.0
    assert verdict.fields["scorer_error"] == f"the scorer was stopped by its limit of {why}"
    assert boxes.limits.memory == 300 << 20
    assert boxes.order["cpu_s"] == 7


@pytest.mark.parametrize("answer", ["9**9**9**9", "1+" * (1 << 19) + "1"])
def test_endless_arithmetic_ends_in_the_sandbox(answer: str) -> None:
    sandbox = SandboxService()
    try:
        verdict = verified(COUNTDOWN, answer, ReasoningGymConfig(score_cpu_s=1), sandbox_client=sandbox)
    finally:
        testing._loop().run_until_complete(sandbox.close())
    assert verdict.reward <= 0.05
    assert verdict.fields["extracted_answer"] == answer


def test_an_answer_that_is_a_program_is_not_run_and_earns_what_an_unreadable_one_does() -> None:
    sandbox = SandboxService()
    try:
        verdict = verified(COUNTDOWN, "print(598)", sandbox_client=sandbox)
    finally:
        testing._loop().run_until_complete(sandbox.close())
    assert (verdict.reward, verdict.fields["scorer_error"]) == (0.01, "not evaluated: it uses print")


def test_a_scorer_that_ends_without_a_word_is_no_score() -> None:
    forged = SandboxResult(0, b'\n0000{"score": 1.0, "error": null}\n', b"no such module")
    with pytest.raises(InfrastructureError, match="no such module"):
        verified(COUNTDOWN, "1", sandbox_client=Boxes(forged))


class Stopped:
    async def run(self, function: Any, *arguments: Any, timeout_s: float | None = None) -> Any:
        assert timeout_s
        raise RolloutTimeout("late")


def test_a_score_in_the_pool_is_bounded() -> None:
    verdict = verified(row("dice"), "1/2", pool_client=Stopped())
    assert verdict.reward == 0.0
    assert "stopped after" in verdict.fields["scorer_error"]


@pytest.mark.parametrize("metadata", [{}, {"source_dataset": ""}, {"source_dataset": None}, {"source_dataset": ["dice"]}])
def test_a_row_that_names_no_task_fails(metadata: dict[str, Any]) -> None:
    with pytest.raises(VerifierError, match="source_dataset"):
        verified({**row("x"), "metadata": metadata}, "1")


@pytest.mark.parametrize("field", ["question", "answer", "metadata"])
def test_rows_without_a_field_are_refused(field: str) -> None:
    harness = EnvironmentHarness(ReasoningGym())
    with pytest.raises(DataError, match=field):
        harness.seed({k: v for k, v in row("dice").items() if k != field})


def test_every_variant_has_its_agent() -> None:
    registry = Registry.load()
    kinds = {v: type(registry.binding(v, None).agent).__name__ for v in registry.entry_of("reasoning_gym").manifest.variants}
    assert sorted(kinds.values()) == ["Orchestrator", "ParallelThinking", "Reflection", "Rewoo", "SimpleAgent"]
    assert registry.binding(None, "reasoning_gym_rewoo_agent").name == "reasoning_gym_rewoo"


def test_tasks_that_are_treated_apart_are_those_that_evaluate() -> None:
    """Read in the library's sources, so that a release that evaluates elsewhere is noticed."""
    root = _root()
    call = re.compile(
        r"(?<!def )(?<!\w)(?:eval|exec|sympify|lambdify|__import__|Fraction)\(\w|(?:sympy|sp)\.parse_expr\(|sympy_parser import parse_expr"
    )
    found = {
        str(p.relative_to(root).with_suffix("")).replace("/", ".")
        for p in root.rglob("*.py")
        if call.search(p.read_text("utf-8"))
    }
    generating = {
        "arithmetic.basic_arithmetic",
        "arithmetic.gsm_symbolic.generators_00_49",
        "arithmetic.gsm_symbolic.generators_50_99",
        "code.codeio",
    }
    assert {m.rpartition(".")[2] for m in found - generating} == SANDBOXED | LITERALS


def test_every_task_of_the_library_is_found_in_its_sources() -> None:
    found = modules()
    assert len(found) == 106
    assert found["figlet_font"] == "cognition.figlet_fonts"
    assert {m.partition(".")[0] for m in found.values()} >= {"algebra", "arc", "code", "induction", "probability"}


@pytest.mark.parametrize("name", ["base_conversion", "knights_knaves"])
def test_any_task_may_be_the_first_of_a_process(name: str) -> None:
    task = next(r for r in ROWS if r["metadata"]["source_dataset"] == name)
    entry = {k: task[k] for k in ("question", "answer", "metadata")}
    program = "import json, sys; from environments.reasoning_gym.scorer import score; print(score(*json.load(sys.stdin)))"
    command = [sys.executable, "-W", "ignore", "-c", program]
    asked = json.dumps([name, task["answer"], entry])
    done = subprocess.run(
        command, input=asked, capture_output=True, text=True, timeout=50, check=True, cwd=Path(__file__).parents[3]
    )
    assert done.stdout == "(1.0, None)\n"


def test_a_library_that_cannot_be_imported_is_no_score(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("environments.reasoning_gym.scorer._modules", lambda: {"broken": "logic.no_such_module"})
    with pytest.raises(VerifierError, match="ModuleNotFoundError"):
        verified(row("broken"), "1")


# Rows.


def test_rows_are_the_librarys_entries_and_what_does_not_fit_is_said(capsys: pytest.CaptureFixture[str]) -> None:
    assert (
        main(["--task", "spell_backward,caesar_cipher", "--size", "6", "--config", '{"spell_backward": {"min_word_len": 5}}'])
        == 0
    )
    made = [json.loads(line) for line in capsys.readouterr().out.splitlines()]
    assert len(made) == 6
    assert {r["metadata"]["source_dataset"] for r in made} == {"spell_backward", "caesar_cipher"}
    for made_row in made:
        ReasoningGym.Task.model_validate(made_row)
        assert made_row["responses_create_params"]["input"] == [{"role": "user", "content": made_row["question"]}]
    for arguments, why in [
        (["--task", "no_such"], "no_such"),
        (["--category", "sport"], "algebra"),
        (["--task", "dice", "--config", '{"x": 1}'], "x"),
    ]:
        assert main(arguments) == 2
        assert why in capsys.readouterr().err


def test_tasks_of_a_category() -> None:
    known = categories()
    assert sum(map(len, known.values())) == 105
    assert len(known["logic"]) == 7
    assert "composite" not in str(known)


@pytest.mark.parametrize("task", ROWS, ids=lambda r: r["metadata"]["source_dataset"])
def test_examples_are_rows_that_their_own_answers_solve(task: dict[str, Any]) -> None:
    name = task["metadata"]["source_dataset"]
    if name not in SANDBOXED and task["answer"]:
        assert verified(task, f"<answer>{task['answer']}</answer>").reward == 1.0
    else:
        ReasoningGym.Task.model_validate(task)


def test_right_grids_earn_1_when_they_are_asked_to() -> None:
    grid = [[1, 2], [3, 4]]
    task = row("arc_agi", "1 2\n3 4", input=grid, output=grid)
    assert verified(task, "1 2\n3 4").reward == 0.05
    assert verified(task, "1 2\n3 4", ReasoningGymConfig(exact_grids=True)).reward == 1.0


def test_lists_are_read_and_not_computed() -> None:
    task = row("string_insertion", "AB")
    assert verified(task, "['A', 'B']").reward == 0.1
    verdict = verified(task, "list('AB')")
    assert (verdict.reward, verdict.fields["score"]) == (0.0, 0.0)


def test_a_scorer_that_raises_gives_nothing_and_says_so() -> None:
    verdict = verified(row("prime_factorization", "5", factors=[5]), "two times three")
    assert verdict.reward == 0.0
    assert verdict.fields["scorer_error"].startswith("ValueError")
    assert "no task 'no_such'" in verified(row("no_such"), "1").fields["scorer_error"]
