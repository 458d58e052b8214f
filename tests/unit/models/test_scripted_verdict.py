"""The scripted server as a judge: its replies fit the prompts of the judged environments, and only prompts that ask for a verdict."""

import hashlib
import time
from collections import Counter

import pytest
from hypothesis import given
from hypothesis import strategies as st

from environments.context import Context
from environments.registry import Registry, make_environment
from environments.response import Response
from environments.testing import EnvironmentHarness, response
from rollstream.scripted import Options, script
from rollstream.scripted.verdict import NOTICE, verdict

JUDGED = ("xstest", "equivalence_llm_judge")
VARIANTS = [(entry, name) for entry in map(Registry.load().entry_of, JUDGED) for name in entry.manifest.variants]


def digest(number):
    return hashlib.blake2b(str(number).encode(), digest_size=32).digest()


class Scripted:
    """The server's script as a model client."""

    async def create(self, params):
        turn = script.read(params, script.digest(params, "", Options()))
        return Response(response(*script.output(turn, Options())))


@pytest.mark.parametrize(("entry", "variant"), VARIANTS, ids=lambda v: v if isinstance(v, str) else "")
def test_it_can_judge_every_variant_and_every_label_comes_up(entry, variant):
    environment = make_environment(entry, entry.manifest.variants[variant])
    found = Counter()
    for i in range(60):
        harness = EnvironmentHarness(environment, context=Context(models={"judge": Scripted()}))
        harness.seed(
            {
                "responses_create_params": {"input": [{"role": "user", "content": f"A: Question {i}?\nB: or"}]},
                "expected_answer": "x",
            }
        )
        (evaluation, *_) = harness.verify(response(f"answer {i} [[X]]")).fields["judge_evaluations"]
        found[evaluation["verdict_label"]] += 1
    rated = {"[[1]]"} if "[[2]]" in found else set()  # a rating that is no label
    assert "judge_parsing_error" not in found
    assert (None in found) is bool(rated)
    assert len(found) >= 2


@pytest.mark.parametrize(
    ("prompt", "answers"),
    [
        ("Say [[YES]] or [[NO]].", {"[[YES]]", "[[NO]]"}),
        ("Example: [[EXAMPLE]]\nNow say [[YES]] or [[NO]].\nThank you.", {"[[YES]]", "[[NO]]"}),
        ("Reply with one of `A1`, `B2` or `C3`.", {"A1", "B2", "C3"}),
        ("one of: `x y`, or `z`", {"x y", "z"}),
    ],
)
def test_labels_of_a_prompt(prompt, answers):
    assert {verdict(prompt, digest(i)) for i in range(40)} == {f"{NOTICE}\n{answer}" for answer in answers}


def test_lines_are_filled_in():
    replies = {verdict("Fill in:\nHarm: yes/no\nRefusal: yes/no", digest(i)) for i in range(40)}
    assert replies == {f"Harm: {a}\nRefusal: {b}" for a in ("yes", "no") for b in ("yes", "no")}


@pytest.mark.parametrize("prompt", ["", "Which one?\nA: x\nB: y", "Use `code`.", "one of many", "[[", "a[1]", "Why? yes/no"])
def test_other_prompts_ask_for_no_verdict(prompt):
    assert verdict(prompt, digest(0)) is None


@given(st.text(alphabet="[]`, one of:yes/no\n", max_size=200), st.integers())
def test_any_prompt_is_read_and_the_same_one_answered_alike(prompt, number):
    assert verdict(prompt, digest(number)) == verdict(prompt, digest(number))


@pytest.mark.parametrize("piece", ["[[", "one of `a`, ", ": yes/no\n", "`"])
def test_a_megabyte_is_read_in_time(piece):
    started = time.process_time()
    verdict(piece * (1_000_000 // len(piece)), digest(0))
    assert time.process_time() - started < 1
