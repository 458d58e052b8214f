"""math_formal_lean: what the cases do not show: hostile text, templates, stricter settings, attempts in the state."""

from __future__ import annotations

import json
import re
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

import environments.math_formal_lean
from environments.agents.playing import Play
from environments.agents.proof_refinement import ProofRefinement, ProofRefinementConfig
from environments.context import Context
from environments.math_formal_lean import feedback
from environments.math_formal_lean.environment import LeanConfig, MathFormalLean
from environments.math_formal_lean.proof import TAGS, extract_code, proof_part
from environments.testing import EnvironmentHarness, ScriptedModel, response
from schemas.errors import DataError, InfrastructureError, VerifierError

ROW = {
    "responses_create_params": {"input": "Prove."},
    "header": "import Mathlib\n",
    "formal_statement": "theorem t : P := by\n",
}
MEGABYTE = 1_000_000


class Compiler:
    """Refuses programs that hold `bad`, warns of `sorry`, and keeps what it was asked."""

    def __init__(self, **reply: Any) -> None:
        self.reply = reply
        self.requests: list[Mapping[str, Any]] = []

    async def execute(self, request: Mapping[str, Any], *, timeout_s: float) -> Mapping[str, Any]:
        self.requests.append({**request, "timeout_s": timeout_s})
        code = request["generated_code"]
        status = "failed" if "bad" in code else "completed"
        said = "warning: declaration uses 'sorry'" if "sorry" in code else ""
        return {"process_status": status, "stdout": said, "stderr": "", **self.reply}


def harness(compiler: Compiler | None = None, **config: Any) -> EnvironmentHarness:
    made = EnvironmentHarness(MathFormalLean(LeanConfig(**config)), context=Context(code_server_client=compiler or Compiler()))
    made.seed(ROW)
    return made


def lean(proof: str) -> str:
    return f"```lean4\ntheorem t : P := by\n  {proof}\n```"


def test_the_examples_are_proved_by_an_accepted_proof() -> None:
    folder = Path(environments.math_formal_lean.__file__).parent
    rows = [json.loads(line) for line in folder.joinpath("data/example.jsonl").read_text("utf-8").splitlines()]
    assert len(rows) >= 5
    for row in rows:
        compiler = Compiler()
        made = harness(compiler)
        made.seed(row)
        assert row["formal_statement"] in row["responses_create_params"]["input"][0]["content"]
        assert made.verify(response(f"```lean4\n{row['formal_statement']}  simp\n```")).reward == 1.0
        assert compiler.requests[0]["generated_code"] == f"{row['header']}{row['formal_statement']}  simp"
        assert compiler.requests[0]["timeout_s"] == 35.0


@pytest.mark.parametrize("missing", ["header", "formal_statement"])
def test_a_row_without_a_theorem_is_refused(missing: str) -> None:
    with pytest.raises(DataError, match=missing):
        harness().seed({k: v for k, v in ROW.items() if k != missing})


def test_without_a_code_server_the_setting_is_named() -> None:
    made = EnvironmentHarness(MathFormalLean())
    made.seed(ROW)
    with pytest.raises(InfrastructureError, match=r"code_server\.url"):
        made.verify(response(lean("simp")))


def test_a_reply_without_output_is_no_score() -> None:
    with pytest.raises(VerifierError, match="no stderr"):
        harness(Compiler(stderr=None)).verify(response(lean("simp")))


def test_a_server_that_does_not_work_may_fail_the_rollout() -> None:
    down = Compiler(process_status="error", stderr="Connection refused")
    assert harness(down).verify(response(lean("simp"))).reward == 0.0
    with pytest.raises(InfrastructureError, match="Connection refused"):
        harness(down, server_errors="fail").verify(response(lean("simp")))


@pytest.mark.parametrize(
    ("proof", "status"),
    [("exact sorry", "forbidden_word"), ("exact sorryAx", "completed"), ("native_decide", "forbidden_word")],
)
def test_forbidden_words_are_not_compiled(proof: str, status: str) -> None:
    compiler = Compiler(stdout="")
    made = harness(compiler, forbidden_words=("sorry", "native_decide"))
    assert made.verify(response(lean(proof))).fields["proof_status"] == status
    assert len(compiler.requests) == (status == "completed")


def test_errors_on_stdout_are_read_when_asked() -> None:
    error = "/lean4/my_project/x.lean:3:2: error: unknown tactic\n/lean4/my_project/x.lean:99:0: error: outside"
    compiler = Compiler(process_status="failed", stdout=error)
    raw = harness(compiler).verify(response(lean("oops"))).fields["error_feedback"]
    read = harness(compiler, errors_from=("stdout", "stderr")).verify(response(lean("oops"))).fields["error_feedback"]
    assert raw.startswith("Compilation output:\n/lean4")
    assert read.startswith("\nError 1:")
    assert "  <error>oops</error>\n" in read
    assert "outside" not in read


def test_attempts_are_scored_once_and_the_last_one_counts() -> None:
    compiler = Compiler()
    made = harness(compiler)
    agent = ProofRefinement(ProofRefinementConfig(max_correction_turns=3))
    play = Play(agent, made, {"policy": ScriptedModel(lean("bad"), lean("sorry"), lean("simp"))})
    final = play.run()
    verdict = made.verify(final)
    assert len(compiler.requests) == 3
    assert (verdict.reward, verdict.fields["turn_index"]) == (1.0, 2)
    assert [a["proof_status"] for a in play.result["all_attempts"]] == ["failed", "has_sorry", "completed"]
    assert [len(a["input"]) for a in play.result["all_attempts"][1:]] == [1, 1]
    assert play.result["all_attempts"][1]["input"][0]["content"] == play.result["all_attempts"][0]["correction_prompt"]
    assert play.result["all_attempts"][2]["response"]["output"] == final["output"] == response(lean("simp"))["output"]
    assert play.result["total_turns"] == 3


def test_a_stored_response_is_scored_again_without_the_state() -> None:
    made = harness()
    made.take({**ROW, "turn_index": 2})
    verdict = made.verify(response(lean("simp")))
    assert (verdict.reward, verdict.fields["turn_index"]) == (1.0, 2)


@pytest.mark.parametrize(
    ("template", "filled"),
    [
        ("{proof_attempt}|{error_message}", "{error_message}|e"),
        ("{{x}} {y} {", "{x} {y} {"),
        ("{proof_attempt.real}", "{proof_attempt.real}"),
    ],
)
def test_templates_take_any_braces_and_quoted_text_fills_its_own_place_only(template: str, filled: str) -> None:
    assert feedback.fill(template, {"proof_attempt": "{error_message}", "error_message": "e"}) == filled


def reference_code(text: str, which: int) -> str | None:
    """Rule 2 as regular expressions, which are quadratic on hostile text."""
    for tag in TAGS:
        found = re.findall(rf"```{tag}\s*(.*?)```", text, re.DOTALL)
        if found:
            return found[which].strip() or None
    return None


@given(
    st.lists(
        st.sampled_from(["```", "lean4", "lean", "python", "\n", " ", "x", "theorem t", ":=", " by ", "ℕ", "`"]), max_size=30
    ).map("".join)
)
def test_blocks_are_those_of_the_rule(text: str) -> None:
    for mode, which in (("last", -1), ("first", 0)):
        expected = reference_code(text, which)
        code = extract_code(text, mode)  # type: ignore[arg-type]
        assert code == code.strip()
        if expected is not None:
            assert code == expected


@given(
    st.text()
    | st.lists(st.sampled_from(["theorem t", "example", " := ", "by", "by x", "\n", "  ", "lemma"]), max_size=20).map("".join)
)
def test_a_proof_part_never_raises_and_is_part_of_the_code(code: str) -> None:
    proof = proof_part(code)
    assert proof == proof.rstrip()
    assert all(line in code for line in proof.split("\n"))


@given(st.text(), st.text(), st.text())
def test_feedback_never_raises(stdout: str, stderr: str, code: str) -> None:
    head = "/lean4/my_project/t.lean:1:0: error: "
    assert feedback.feedback(stdout, head + stderr, code, ("stderr",))
    assert feedback.feedback(stdout, stderr, code, ("stdout", "stderr"))


HOSTILE = {
    "blanks": "```lean4" + " " * MEGABYTE,
    "fences": "```" * (MEGABYTE // 3),
    "tags": "```lean4\n" * (MEGABYTE // 9),
    "theorems": "theorem t\n" * (MEGABYTE // 10),
    "signs": "```lean4\ntheorem t :=" + ":=" * (MEGABYTE // 2),
    "line breaks": "```\n" + "\n" * MEGABYTE + "```",
    "surrogates": "```lean4\n" + "\ud800" * MEGABYTE,
}


@pytest.mark.parametrize("text", HOSTILE.values(), ids=HOSTILE.keys())
def test_a_megabyte_takes_well_under_a_second(text: str) -> None:
    made = harness(forbidden_words=("sorry",))
    started = time.process_time()
    made.verify(response(text))
    assert time.process_time() - started < 0.8


@pytest.mark.parametrize(
    "output",
    [
        "/lean4/my_project/a.lean:1:0: error: " * 30_000,
        "/lean4/my_project/a.lean:1:0: error: x\n" * 25_000,
        "/lean4/my_project" + ":1" * 500_000,
        "\n" * MEGABYTE,
    ],
)
def test_a_megabyte_of_compiler_output_takes_well_under_a_second(output: str) -> None:
    started = time.process_time()
    assert feedback.feedback("", output, "theorem", ("stderr",))
    assert time.process_time() - started < 0.8
