"""Models by name: which endpoint answers, what is said when that is the policy, and how calls fail."""

import asyncio
import json

import pytest
from structlog.testing import capture_logs

from environments.common.judging import Judge, JudgeConfig
from environments.context import Context
from rollstream.scripted import Fault, FaultKind, ScriptedModel
from schemas.errors import JudgeError, ModelError
from services.models.endpoint import ModelEndpoint, RetryBudget, Timeouts
from services.models.named import Endpoints, NamedModels

KEY = "an-unusual-secret-123456"


def endpoint(url, name="scripted", **settings):
    retries = RetryBudget(max_attempts=3, base_s=0.01, cap_s=0.02)
    return ModelEndpoint(base_url=url, name=name, **{"retries": retries, "api_key": KEY} | settings)


class Opened:
    """Started models, closed on the way out."""

    def __init__(self, endpoints, **options):
        self.models = NamedModels(endpoints, **{"budget_s": 10.0, "judges": True} | options)

    async def __aenter__(self):
        await self.models.start()
        return self.models

    async def __aexit__(self, *_):
        await self.models.close()


async def test_a_call_goes_to_the_named_endpoint_with_its_model_and_says_what_became_of_it():
    async with ScriptedModel(record=True) as policy, ScriptedModel(record=True, faults=[Fault(status=503)]) as judge:
        endpoints = Endpoints(endpoint(policy.base_url), {"judge": endpoint(judge.base_url, "grader")})
        async with Opened(endpoints) as models:
            answer = await models["judge"].create({"model": "other", "input": "Say [[YES]] or [[NO]].", "temperature": 0.0})
        assert (policy.requests, judge.requests) == (0, 2)
        sent = json.loads(judge.seen[0].body)
    assert (sent["model"], sent["temperature"]) == ("grader", 0.0)
    assert judge.seen[0].key == judge.seen[1].key != ""
    assert (answer.endpoint, answer.model, answer.tries, answer.reused) == (judge.base_url, "grader", 2, False)
    assert answer.latency_s > 0
    assert endpoints.warnings == []


async def test_a_name_without_settings_is_the_policy_and_that_is_said_once():
    async with ScriptedModel() as policy:
        endpoints = Endpoints(endpoint(policy.base_url))
        with capture_logs() as logs:
            async with Opened(endpoints) as models, Opened(endpoints) as others:
                await asyncio.gather(*(m["judge"].create({"input": "x"}) for m in (models, models, others)))
                assert models.client("genrm") is models.client("policy") is models.clients["judge"]
    said = [(entry["event"], entry["name"]) for entry in logs if entry["log_level"] == "warning"]
    assert said == [("model_is_policy", "judge"), ("model_is_policy", "genrm")]
    assert [w.split(" and ")[0] for w in endpoints.warnings] == ["model 'genrm'", "model 'judge'"]
    assert "depend on the model under training" in endpoints.warnings[0]


def test_a_judge_that_is_configured_to_be_the_policy_is_said_at_once():
    one, other = endpoint("http://a/v1"), endpoint("http://b/v1")
    assert len(Endpoints(one, {"judge": endpoint("http://a/v1", retries=RetryBudget())}).warnings) == 1
    assert Endpoints(one, {"judge": other}).warnings == []
    assert Endpoints(one, {"judge": endpoint("http://a/v1", "another")}).warnings == []


async def test_without_a_policy_an_unknown_name_is_nobody():
    async with Opened(Endpoints(None, {"judge": endpoint("http://a/v1")})) as models:
        assert list(models) == ["judge"]
        assert models.get("genrm") is None
        assert models.get("policy") is None


async def test_names_that_share_an_endpoint_share_its_client_and_limit():
    shared = endpoint("http://a/v1", max_concurrency=1)
    async with Opened(Endpoints(endpoint("http://p/v1"), {"a": shared, "b": shared, "c": endpoint("http://c/v1")})) as models:
        assert models.client("a") is models.client("b")
        assert models.client("a") is not models.client("c")
        assert len(models) == 4


@pytest.mark.parametrize(
    "fault",
    [
        Fault(status=503),
        Fault(status=400),
        Fault(kind=FaultKind.GARBAGE),
        Fault(kind=FaultKind.CLOSE),
        Fault(kind=FaultKind.OVERFLOW),
    ],
    ids=lambda f: f"{f.kind}-{f.status}",
)
@pytest.mark.parametrize(
    ("name", "judges", "error"), [("judge", True, JudgeError), ("policy", True, ModelError), ("judge", False, ModelError)]
)
async def test_failed_calls_are_failures_of_the_judge_or_of_the_model(fault, name, judges, error):
    async with (
        ScriptedModel(faults=[fault] * 3) as model,
        Opened(Endpoints(endpoint(model.base_url)), judges=judges) as models,
    ):
        if fault.kind is FaultKind.OVERFLOW and error is ModelError:
            assert (await models[name].create({"input": "x"})).joined_text() == ""  # how a policy's answer ends
            return
        with pytest.raises(error) as e:
            await models[name].create({"input": "x"})
    assert str(e.value).startswith(f"{name}: ")
    assert KEY not in f"{e.value} {e.value.detail}"


async def test_a_call_ends_within_its_budget_and_that_is_a_failed_call():
    timeouts = Timeouts(first_byte_s=20, call_s=20)
    async with (
        ScriptedModel(faults=[Fault(kind=FaultKind.HANG_BEFORE_HEADERS, seconds=30)]) as model,
        Opened(Endpoints(endpoint(model.base_url, timeouts=timeouts)), budget_s=0.3) as models,
    ):
        started = asyncio.get_running_loop().time()
        with pytest.raises(JudgeError, match="deadline passed"):
            await models["judge"].create({"input": "x"})
        assert asyncio.get_running_loop().time() - started < 5


async def test_environments_reach_it_through_their_context():
    async with ScriptedModel() as model, Opened(Endpoints(endpoint(model.base_url))) as models:
        reply = await Judge(JudgeConfig()).ask(Context(models=models), "Say [[YES]] or [[NO]].")
    assert reply.last_part
