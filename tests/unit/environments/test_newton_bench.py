"""newton_bench: laws, experiments, submissions in the real sandbox, the judge; what the page says and the cases do not show."""

from __future__ import annotations

import array
import json
import math
import random
import time
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

import environments.newton_bench as package
from environments import testing
from environments.context import Context
from environments.newton_bench import measuring
from environments.newton_bench.environment import NewtonBench, NewtonConfig, reward
from environments.newton_bench.experiments import SIMULATORS, perform
from environments.newton_bench.laws import LAWS, VERSIONS, law_of
from environments.newton_bench.measuring import POINTS, Hidden, Measured, compare, make_test
from environments.newton_bench.modules import MODULES, SYSTEMS
from environments.newton_bench.noise import ORDINARY, Noise
from environments.newton_bench.reading import equivalent, fault, submitted
from environments.newton_bench.rows import rows
from environments.registry import Registry
from environments.response import Response
from environments.testing import EnvironmentHarness, ScriptedModel, response
from schemas.errors import DataError, InfrastructureError, JudgeError
from schemas.rows import check_row
from services.sandbox.sandbox import SandboxService

EXAMPLES = Path(package.__file__).parent / "data" / "example.jsonl"
HEADS = {name: f"def discovered_law({', '.join(m.parameters)}):" for name, m in MODULES.items()}
M0 = HEADS["m0_gravity"]
EXACT = f"{M0}\n    return 6.674e-5 * mass1 * mass2 / distance**1.5"
QUIET = Noise(0.0, random.Random(0))


def task(module="m0_gravity", **fields):
    known = {"module_name": module, "difficulty": "easy", "system": "vanilla_equation", "noise_level": 0.0, "law_version": "v0"}
    return {"responses_create_params": {"input": "Begin."}, **known, **fields}


@pytest.fixture(scope="module")
def sandbox():
    pytest.importorskip("numpy")
    service = SandboxService()
    yield service
    testing._loop().run_until_complete(service.close())


def scored(sandbox, code, *replies, config=None, **fields):
    model = ScriptedModel(*replies)
    context = Context(make_rng=lambda: random.Random(7), models={"judge": model}, sandbox_client=sandbox)
    harness = EnvironmentHarness(NewtonBench(NewtonConfig(**(config or {}))), context=context)
    harness.seed(task(**fields))
    return harness.verify(response(f"<final_law>{code}</final_law>")), model


@pytest.mark.parametrize("module", MODULES)
def test_every_law_submitted_as_it_is_hidden_has_no_error(module):
    """The table's own expressions, run by the program that runs submissions, at the points at which they are scored."""
    np = pytest.importorskip("numpy")
    from environments.newton_bench.submission import function_of, magnitude

    names = {
        n: getattr(math, n) for n in ("sin", "cos", "tan", "asin", "acos", "atan", "exp", "log", "sqrt", "degrees", "radians")
    }
    for difficulty, version in [(d, v) for d in LAWS[module] for v in VERSIONS]:
        law = law_of(module, difficulty, version)
        test = make_test(Hidden(module, difficulty, version), 3)
        silent = f"    if {law.module.silent}:\n        return {law.module.silence!r}\n".replace("nan", "float('nan')")
        code = f"{HEADS[module]}\n{silent}    try:\n        return {law.expression}\n    except (ValueError, ArithmeticError):\n        return float('nan')"
        assert fault(code, module) is None
        function = function_of(code, {"np": np, **names})
        points = np.frombuffer(test.points).reshape(POINTS, -1)
        values = array.array(
            "d", [math.nan if isinstance(v := function(*row), complex) else magnitude(v, np) for row in points[:500].tolist()]
        )
        measured = compare(values.tobytes(), test.truth[:500])
        assert measured.gaps == 0
        assert measured.rmsle == 0.0 or all(map(math.isnan, values)), (difficulty, version)


@given(st.integers(0, 2**32 - 1), st.sampled_from(list(MODULES)))
def test_points_lie_in_their_ranges_and_are_those_of_the_seed(seed, module):
    np = pytest.importorskip("numpy")
    made = make_test(Hidden(module, "easy", "v0"), seed)
    assert made == make_test(Hidden(module, "easy", "v0"), seed)
    points = np.frombuffer(made.points).reshape(POINTS, -1)
    for column, where in zip(points.T, MODULES[module].ranges, strict=True):
        assert where.low * (1 - 1e-9) <= column.min() <= column.max() <= where.high * (1 + 1e-9)


NUMBERS = st.floats() | st.sampled_from([0.0, -1.0, 1e308, math.nan, math.inf])


@given(
    st.sampled_from(list(MODULES)),
    st.sampled_from(SYSTEMS),
    st.sampled_from(["easy", "medium", "hard"]),
    st.sampled_from(VERSIONS),
    st.data(),
)
def test_any_experiment_is_answered_in_json(module, system, difficulty, version, data):
    pytest.importorskip("scipy")
    given_ = {
        name: data.draw(st.none() | (st.integers(-3, 30_000) if name == "num_points" else NUMBERS))
        for name in MODULES[module].arguments
    }
    noise = Noise(data.draw(st.sampled_from([0.0, 0.1])), random.Random(0))
    found = perform(module, difficulty, version, system, given_, noise)
    json.dumps(found, allow_nan=False)


@pytest.mark.parametrize("module", MODULES)
@pytest.mark.parametrize("system", SYSTEMS)
def test_experiments_without_noise_repeat_and_with_noise_scatter(module, system):
    pytest.importorskip("scipy")
    given_ = dict.fromkeys(MODULES[module].arguments, 1.0) | {"time_step": 0.1, "num_points": 4}
    given_ |= {
        "speed_medium1": 3e8,
        "speed_medium2": 2.5e8,
        "theta": 0.4,
        "k_constant": 9.0,
        "omega": 1e9,
        "probe_frequency": 1e9,
    }
    if module == "m4_snell_law":
        given_ |= {"refractive_index_2": 1.2, "refractive_index_3": 1.3, "incidence_angle": 20.0}

    def once(level, seed):
        return perform(module, "easy", "v0", system, given_, Noise(level, random.Random(seed)))

    first = once(0.0, 1)
    assert "error" not in (first if isinstance(first, dict) else {})
    assert (once(0.0, 2) == first) is (module != "m11_heat_transfer" or system == "vanilla_equation" or once(0.0, 2) == first)
    assert once(0.2, 1) != once(0.2, 2)
    assert once(0.2, 1) == once(0.2, 1)


@given(st.floats(-1e6, 1e6), st.floats(1e-3, 1.0))
def test_noise_has_the_deviation_that_was_asked_for(value, level):
    noise = Noise(level, random.Random(1))
    values = [noise.on(value, ORDINARY) - value for _ in range(2_000)]
    deviation = math.sqrt(sum(v * v for v in values) / len(values))
    assert deviation == pytest.approx(max(abs(value) * level, ORDINARY), rel=0.1)


def test_an_experiment_that_asks_for_too_much_is_told_so_at_once():
    pytest.importorskip("numpy")
    given_ = {"k": 1.0, "A": 1.0, "delta_T": 1.0, "d": 1.0, "num_points": 10**12}
    assert perform("m3_fourier_law", "easy", "v0", "simple_system", given_, QUIET) == {
        "error": "num_points may be 10000 at most"
    }
    long = {"mass1": 1.0, "mass2": 1.0, "distance": 1.0, "initial_velocity": 0.0, "duration": 1e300, "time_step": 1e-3}
    started = time.process_time()
    assert len(perform("m0_gravity", "easy", "v0", "simple_system", long, QUIET)["time"]) == 20
    assert time.process_time() - started < 1


@pytest.mark.parametrize(
    ("fields", "words"),
    [
        ({"difficulty": "extreme"}, "difficulty 'extreme'"),
        ({"law_version": "v9"}, "version 'v9'"),
        ({"system": "x"}, "system 'x'"),
    ],
)
def test_what_a_row_names_wrongly_shows_in_the_experiment(fields, words):
    harness = EnvironmentHarness(NewtonBench())
    harness.seed(task(**fields))
    reply = json.loads(harness.call("run_experiment_m0_gravity", '{"mass1": 1, "mass2": 1, "distance": 1}').output)
    assert words in reply["result"]["error"]


def test_an_unknown_module_is_refused_with_the_known_ones():
    for act in (lambda h: h.seed(task("m99_magic")), lambda h: (h.take(task("m99_magic")), h.verify(response("x")))):
        with pytest.raises(DataError, match="m0_gravity, m1_coulomb_force"):
            act(EnvironmentHarness(NewtonBench()))


SUBMISSIONS = [
    (EXACT, 0.0, None),
    (f"{M0}\n    import os\n    os._exit(0)\n    return 1", None, "ended its process"),
    (f"{M0}\n    while True: pass\n    return 1", None, "took too long"),
    (f"{M0}\n    return open('/etc/shadow').read()", None, "failed"),
    (f"{M0}\n    return np.zeros(2)", None, "returned ndarray"),
    (f"{M0}\n    return 10**400", None, "too large"),
    (f"{M0}\n    print('x' * 10**6)\n    return 1", None, "wrote too much"),
    (f"{M0}\n    raise SystemExit\n    return 1", None, "SystemExit"),
    (f"# {M0} return 1\nx = 1", None, "discovered_law"),
]


@pytest.mark.parametrize(("code", "rmsle", "words"), SUBMISSIONS)
def test_a_submission_is_run_in_the_sandbox(sandbox, code, rmsle, words):
    verdict, _ = scored(sandbox, code, "Answer: NO", config={"submission_time": 2.0 if "while" in code else 60.0})
    assert verdict.fields["rmsle"] == rmsle
    assert (words is None) is (verdict.fields["evaluation_error"] is None)
    assert (words or "") in (verdict.fields["evaluation_error"] or "")
    assert verdict.reward == pytest.approx(0.4 if rmsle == 0.0 else -0.3)


def test_scoring_again_gives_the_same(sandbox):
    code = f"{M0}\n    return 6e-5 * mass1 * mass2 / distance**1.4"
    one, other = (scored(sandbox, code, "Answer: NO")[0] for _ in range(2))
    assert one.fields["rmsle"] > 0
    assert (one.reward, one.fields) == (other.reward, other.fields)


def test_a_sandbox_that_cannot_start_the_program_is_no_score():
    class Empty:
        async def run(self, argv, **_):
            from environments.context import SandboxResult

            return SandboxResult(1, b"", b"no module named numpy")

    pytest.importorskip("numpy")
    with pytest.raises(InfrastructureError, match="did not start") as failure:
        scored(Empty(), EXACT)
    assert "numpy" in failure.value.detail


def test_the_strict_variant_closes_the_holes(sandbox):
    fenced, gaps = (
        f"```\n{EXACT}\n```",
        f"{M0}\n    return 6.674e-5 * mass1 * mass2 / distance**1.5 if distance < 2 else float('nan')",
    )
    for code, lenient in ((fenced, 1.0), (gaps, 1.0), (EXACT, 1.0)):
        assert scored(sandbox, code, "Answer: YES")[0].reward == pytest.approx(lenient)
    strict = [scored(sandbox, c, "Answer: YES", config={"strict_numbers": True})[0].reward for c in (fenced, gaps, EXACT)]
    assert strict == pytest.approx([-0.4, -0.4, 1.0])


def test_a_judge_that_fails_is_the_rollouts_failure_unless_configured(sandbox):
    away = [JudgeError("away")] * 3
    with pytest.raises(JudgeError, match="away"):
        scored(sandbox, EXACT, *away)
    with pytest.raises(JudgeError):
        scored(sandbox, EXACT, "hmm", JudgeError("away"), "hmm")
    assert scored(sandbox, EXACT, *away, config={"on_judge_failure": "score"})[0].reward == pytest.approx(0.4)
    verdict, model = scored(sandbox, EXACT, JudgeError("away"), "hmm", "Answer: YES")
    assert verdict.reward == pytest.approx(1.0)
    assert len(model.requests) == 3


def test_the_judge_sees_formula_code_and_parameters(sandbox):
    verdict, model = scored(sandbox, EXACT, "Answer: YES")
    (request,) = model.requests
    text = request["input"][0]["content"]
    assert request["temperature"] == 0.6
    assert verdict.fields["symbolic_equivalent"] is True
    for part in ("6.674e-5 * mass1 * mass2 / distance**1.5", EXACT, "- distance: distance between the masses"):
        assert part in text


@pytest.mark.parametrize(
    ("text", "wanted"),
    [
        ("", None),
        (None, None),
        ("ANSWER:\n NO", False),
        ("yes no", False),
        ("noyes", None),
        ("Answer: MAYBE, yes", True),
        ("answer:yesterday", True),
    ],
)
def test_reading_the_judge(text, wanted):
    assert equivalent(text) is wanted


@given(st.lists(st.sampled_from(["<final_law>", "</final_law>", "x", "<", "\n", " "]), max_size=12).map("".join))
def test_the_law_is_what_stands_between_the_last_tags(text):
    found = submitted(Response(response(text)))
    before, opening, after = text.rpartition("<final_law>")
    inside, closing, _ = after.partition("</final_law>")
    assert found == (inside.strip() if opening and closing else None), before


@pytest.mark.parametrize("module", MODULES)
def test_signatures_are_exact(module):
    names = list(MODULES[module].parameters)
    spaced = f"def discovered_law( {', '.join(names)} ):\n  return 1"
    assert fault(f"def  discovered_law ({','.join(names)}):\n  return 1", module) is None
    assert (fault(spaced, module) is None) is MODULES[module].spaced
    for wrong in (
        f"def discovered_law({', '.join(names)}) -> float:\n  return 1",
        f"def discovered_law({', '.join(names)}, x):\n  return 1",
        f"{HEADS[module]}\n  pass",
    ):
        assert fault(wrong, module) is not None


@pytest.mark.parametrize("piece", ["<final_law>", "def discovered_law(", "return ", "def ", " ", "</final_law><final_law>x"])
def test_a_megabyte_is_read_in_less_than_a_second(piece):
    text = piece * (1_000_000 // len(piece))
    started = time.process_time()
    submitted(Response(response(text)))
    for module in MODULES:
        fault(text, module)
    equivalent(text)
    assert time.process_time() - started < 1


@given(st.none() | st.floats(0, 1e300), st.booleans(), st.booleans(), st.integers(0, 5))
def test_rewards_lie_between_minus_one_and_one(rmsle, same, strict, gaps):
    value = reward(Measured(rmsle, gaps=gaps), same, strict=strict)
    assert -1.0 <= value <= 1.0
    assert reward(Measured(rmsle, gaps=gaps), True, strict=strict) > reward(Measured(rmsle, gaps=gaps), False, strict=strict)


def test_errors_are_compared_by_size_and_gaps_are_left_out():
    values = array.array("d", [1.0, -3.0, math.nan, 5.0]).tobytes()
    assert compare(values, [1.0, 3.0, 2.0, math.nan]) == Measured(0.0, None, gaps=1)
    assert compare(values, [math.nan] * 4).rmsle is None
    assert compare(array.array("d", [math.inf]).tobytes(), [1.0]).rmsle is None
    assert compare(b"", [1.0]).error == "the submission left no values"
    assert compare(array.array("d", [math.e - 1]).tobytes(), [0.0]).rmsle == pytest.approx(1.0)


def test_rows_are_complete_and_the_examples_are_some_of_them():
    made = list(rows(noise=0.01, code=True))
    assert len(made) == len(SYSTEMS) * 108
    assert set(SIMULATORS) == set(LAWS) == set(MODULES)
    for row in made[:: len(made) // 40]:
        check_row(row)
        text = row["responses_create_params"]["input"][0]["content"]
        assert "{" not in text
        assert law_of(row["module_name"], row["difficulty"], row["law_version"]).expression not in text
    examples = [json.loads(line) for line in EXAMPLES.read_text("utf-8").splitlines()]
    assert len(examples) >= 5
    for row in examples:
        own = {k: v for k, v in row.items() if k != "id"}
        offered = [t["name"] for t in row["responses_create_params"]["tools"]]
        assert own in list(rows(noise=row["noise_level"], code="execute_python" in offered))
        harness = EnvironmentHarness(Registry.load().binding(None, row["agent_ref"]["name"]))
        harness.seed(row)
        assert harness.verify(response("I give up.")).reward == 0.0


def test_measuring_takes_the_sandboxs_time_and_little_more(sandbox):
    started = time.perf_counter()
    scored(sandbox, EXACT, "Answer: NO")
    assert time.perf_counter() - started < 10
    assert measuring.POINTS == 5_000
