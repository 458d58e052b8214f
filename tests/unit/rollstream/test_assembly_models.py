"""Settings to endpoints: the policy, judges, the scripted server in their place, and what the run record says."""

import pytest

from environments.context import Context
from rollstream.runfiles.run_record import RunRecord, read_run_record
from rollstream.runner.assembly import clients_of, endpoints_of
from rollstream.settings.model import Model, OtherModel, Settings
from schemas.errors import InfrastructureError
from services.models.named import NamedModels

JUDGE = OtherModel(url="http://judge/v1", name="grader", api_key="hunter2hunter2", concurrency=7, max_tries=2, call_timeout_s=5)


def test_a_configured_judge_has_its_own_endpoint_limit_and_budget():
    settings = Settings(model=Model(url="http://policy/v1", name="p"), models={"judge": JUDGE})
    endpoints = endpoints_of(settings)
    judge = endpoints.find("judge")
    assert (judge.base_url, judge.name, judge.max_concurrency, judge.retries.max_attempts) == (
        "http://judge/v1",
        "grader",
        7,
        2,
    )
    assert judge.timeouts.first_byte_s == 5
    assert endpoints.policy.base_url == "http://policy/v1"
    assert endpoints.find("genrm") is endpoints.policy


def test_the_scripted_server_stands_where_it_was_asked_for():
    settings = Settings(models={"judge": JUDGE, "genrm": OtherModel(url="scripted")})
    endpoints = endpoints_of(settings, "http://127.0.0.1:9/v1")
    urls = [endpoints.find(name).base_url for name in ("policy", "judge", "genrm")]
    assert urls == ["http://127.0.0.1:9/v1", "http://judge/v1", "http://127.0.0.1:9/v1"]
    assert [w.split("'")[1] for w in endpoints.warnings] == ["genrm"]


def test_a_worker_without_a_server_has_no_scripted_policy_and_refuses_a_scripted_judge():
    assert endpoints_of(Settings()).policy is None
    with pytest.raises(InfrastructureError, match=r"models\.judge\.url"):
        endpoints_of(Settings(models={"judge": OtherModel(url="scripted")}))


async def test_environment_code_finds_the_models_by_any_name():
    settings = Settings(model=Model(url="http://policy/v1", name="p"))
    clients = clients_of(settings, NamedModels(endpoints_of(settings), budget_s=1))
    clients._offered = clients._stand_ins()
    assert Context(models=clients._offered["models"]).model("judge")
    bare = clients_of(Settings(), NamedModels(endpoints_of(Settings()), budget_s=1))
    with pytest.raises(InfrastructureError, match="no model named 'judge'"):
        Context(models=bare._stand_ins()["models"]).model("judge")


def test_the_run_record_keeps_models_and_warnings_and_no_secret(tmp_path):
    models = {"judge": {"url": "http://me:hunter2@h/v1", "name": "grader"}}
    record = RunRecord("r", "h", "1", "now", models=models, warnings=["model 'judge' and the policy are the same endpoint"])
    record.write(tmp_path / "run.json")
    assert "hunter2" not in (tmp_path / "run.json").read_text()
    back = read_run_record(tmp_path / "run.json")
    assert list(back.warnings) == record.warnings
    assert back.models["judge"]["name"] == "grader"


def test_the_options_of_an_engine_reach_its_endpoint():
    """platform.md D1, D3: under the reference's names, several base URLs as a list or by comma."""
    policy = Model(
        url=["http://a/v1", "http://b/v1"],
        name="p",
        engine="vllm",
        return_token_id_information=True,
        chat_template_kwargs={"enable_thinking": False},
        extra_body='{"seed": 7}',
    )
    azure = OtherModel(
        url="https://x.azure.com", name="g", engine="azure", default_query={"api-version": "1"}, api_key="hunter2"
    )
    endpoints = endpoints_of(Settings(model=policy, models={"judge": azure}))
    assert (endpoints.policy.base_url, endpoints.policy.replicas) == ("http://a/v1", ("http://b/v1",))
    options = endpoints.policy.options
    assert (options.engine, options.return_token_id_information, options.extra_body) == ("vllm", True, {"seed": 7})
    judge = endpoints.find("judge")
    assert judge.request_headers() == {"api-key": "hunter2"}
    assert judge.options.default_query == {"api-version": "1"}


def test_the_scripted_server_speaks_the_engine_that_is_asked_for():
    endpoints = endpoints_of(Settings(model=Model(engine="chat")), "http://127.0.0.1:9/v1")
    assert (endpoints.policy.base_url, endpoints.policy.options.engine) == ("http://127.0.0.1:9/v1", "chat")
