"""What a configuration means here (platform.md D1, D3, E3, E4): models, variants, and what is said of the rest."""

import pytest

from environments.own import OwnVariant
from environments.registry import Registry
from rollstream.nemo_gym import keys
from rollstream.nemo_gym.errors import ConfigurationError, Level
from rollstream.nemo_gym.merging import merge
from rollstream.nemo_gym.overrides import parse
from rollstream.nemo_gym.roots import Roots
from rollstream.nemo_gym.shipped import MODELS, Shipped
from rollstream.nemo_gym.translation import translate
from rollstream.settings.model import Settings

POLICY = "policy_base_url: http://h:1/v1\npolicy_api_key: sk-1\npolicy_model_name: m\n"

PAIR = """
lenient:
  resources_servers:
    mcqa: {entrypoint: app.py, domain: knowledge, grading_mode: lenient_boxed, num_workers: 3}
lenient_agent:
  responses_api_agents:
    simple_agent:
      entrypoint: app.py
      max_steps: 2
      resources_server: {type: resources_servers, name: lenient}
      model_server: {type: responses_api_models, name: policy_model}
      datasets: [{name: example, type: example, jsonl_fpath: rows.jsonl}]
"""


def model(kind, **values):
    body = "".join(f"      {k}: {v}\n" for k, v in {"entrypoint": "app.py", **values}.items())
    return f"policy_model:\n  responses_api_models:\n    {kind}:\n{body}"


def said(translation, level=None):
    return [str(r) for r in translation.remarks if level in (None, r.level)]


def test_e4_a_pair_of_blocks_is_a_variant_of_ours(write, resolved):
    write("a.yaml", PAIR)
    found = resolved("--config", "a.yaml").translation.checked()
    assert found.settings["variants"] == {
        "lenient": {
            "environment": "mcqa",
            "agent": {"name": "lenient_agent", "config": {"max_steps": 2}},
            "config": {"grading_mode": "lenient_boxed"},
        }
    }
    assert found.agents == {"lenient_agent": "lenient"}
    assert found.datasets["lenient_agent"][0]["jsonl_fpath"] == "rows.jsonl"
    own = {n: OwnVariant.model_validate(v) for n, v in found.settings["variants"].items()}
    binding = Registry.load(own).binding(None, "lenient_agent")
    assert (binding.environment.config.grading_mode, binding.agent.config.max_steps) == ("lenient_boxed", 2)


def test_e4_every_shipped_file_means_the_shipped_variants_and_nothing_else(shipped_registry):
    shipped = Shipped(shipped_registry.entries)
    assert all(shipped(name) for name in shipped.known())
    agents = set()
    for name in (f"environments/{e.manifest.name}/config.yaml" for e in shipped_registry.entries):
        merged = merge([parse(f"+config_paths=[{name}]")], Roots.of((), {}), shipped, shipped.known)
        found = translate(merged, shipped_registry).checked()
        assert "variants" not in found.settings, name
        assert not [r for r in found.remarks if r.level is not Level.NOTE], name
        agents |= found.agents.keys()
    assert agents == {v.agent.name for e in shipped_registry.entries for v in e.manifest.variants.values()}


def test_e4_files_of_the_reference_by_its_older_and_newer_names(resolved, write):
    write("env.yaml", POLICY)
    for path, agents in [
        ("resources_servers/equivalence_llm_judge/configs/nl2bash-equivalency.yaml", {"nl2bash_equivalency_simple_agent"}),
        ("resources_servers/math_formal_lean/configs/math_formal_lean_multi_turn.yaml", {"math_formal_lean_refinement_agent"}),
        ("resources_servers/reasoning_gym/configs/reflection_agent.yaml", {"reasoning_gym_reflection_agent"}),
        ("environments/xstest/config.yaml", {"xstest_simple_agent", "xstest_wildguard_simple_agent"}),
        ("benchmarks/livecodebench_v6/config.yaml", {"livecodebench_v6_code_gen_simple_agent"}),
    ]:
        assert set(resolved("--config", path).translation.agents) == agents, path


def test_e4_a_word_over_a_shipped_block_makes_a_variant_of_the_same_name(resolved, write):
    write("env.yaml", POLICY)
    path = "resources_servers/math_with_code/configs/math_with_code.yaml"
    key = "math_with_code_simple_agent.responses_api_agents.simple_agent.max_steps"
    found = resolved("--config", path, f"{key}=9").translation.checked()
    assert found.settings["variants"]["math_with_code"]["agent"]["config"] == {"max_steps": 9}
    assert "variants" not in resolved("--config", path, f"{key}=3").translation.settings  # as it is shipped


def test_e4_one_server_with_two_agents_and_one_without(resolved, write):
    second = PAIR.split("lenient_agent:")[1].replace("max_steps: 2", "max_steps: 5")
    write(
        "a.yaml",
        f"{PAIR}\nother_agent:{second}\nalone:\n  resources_servers: {{mcqa: {{entrypoint: a, domain: math, grading_mode: lenient_answer_colon}}}}\n",
    )
    found = resolved("--config", "a.yaml").translation.checked()
    assert found.agents == {"lenient_agent": "lenient", "other_agent": "other_agent", "alone_simple_agent": "alone"}
    assert found.settings["variants"]["other_agent"]["agent"]["config"] == {"max_steps": 5}


def test_e4_a_judge_is_a_named_model_and_the_blocks_reference_becomes_its_name(resolved, write):
    judged = PAIR.replace(
        "mcqa: {", "xstest: {judge_model_server: {type: responses_api_models, name: big_judge_model}, "
    ).replace("grading_mode: lenient_boxed", "judge_responses_create_params: {temperature: 0}")
    judge = model("openai_model", openai_base_url="http://j:2/v1", openai_api_key="k", openai_model="j")
    write("a.yaml", POLICY + judged + judge.replace("policy_model", "big_judge_model"))
    found = resolved("--config", "a.yaml").translation.checked()
    assert found.settings["models"] == {"big_judge": {"url": "http://j:2/v1", "api_key": "k", "name": "j"}}
    assert found.settings["variants"]["lenient"]["config"]["judge_model_server"] == "big_judge"
    Settings.model_validate(found.settings)


def test_e4_a_judge_that_is_the_policy_stays_the_policy(resolved, write):
    judged = PAIR.replace("mcqa: {", "xstest: {judge_model_server: {type: responses_api_models, name: policy_model}, ")
    write("a.yaml", POLICY + judged.replace(", grading_mode: lenient_boxed", ""))
    assert resolved("--config", "a.yaml").translation.checked().settings["variants"]["lenient"]["config"] == {
        "judge_model_server": "policy"
    }


@pytest.mark.parametrize(
    ("block", "expected"),
    [
        (
            model("openai_model", openai_base_url="http://h/v1", openai_api_key="k", openai_model="m", max_concurrent_requests=7,
                  extra_body="{a: 1}", openai_default_headers="{X-A: b}", drop_input_reasoning_items="true"),
            {"url": "http://h/v1", "api_key": "k", "name": "m", "concurrency": 7, "extra_body": {"a": 1},
             "default_headers": {"X-A": "b"}, "drop_input_reasoning_items": True},
        ),
        (
            model("azure_openai_model", openai_base_url="http://h", openai_api_key="k", openai_model="m",
                  default_query="{api-version: '2025-04-01'}", max_concurrent_requests=8),
            {"engine": "azure", "url": "http://h", "api_key": "k", "name": "m", "default_query": {"api-version": "2025-04-01"}, "concurrency": 8},
        ),
        (
            model("inference_provider", base_url="http://h/v1", api_key="k", model="m", num_concurrent_requests=9, uses_reasoning_parser="true"),
            {"engine": "chat", "url": "http://h/v1", "api_key": "k", "name": "m", "concurrency": 9, "uses_reasoning_parser": True},
        ),
        (
            model("vllm_model", base_url="[http://a/v1, http://b/v1]", api_key="k", model="m", return_token_id_information="true",
                  uses_reasoning_parser="true", chat_template_kwargs="{thinking: false}", extra_body="null",
                  sampling_overrides="{temperature: 1.0}", replace_developer_role_with_system="true", num_workers=8),
            {"engine": "vllm", "url": ["http://a/v1", "http://b/v1"], "api_key": "k", "name": "m", "return_token_id_information": True,
             "uses_reasoning_parser": True, "chat_template_kwargs": {"thinking": False}, "sampling_overrides": {"temperature": 1.0},
             "replace_developer_role_with_system": True},
        ),
        (
            model("vllm_model", base_url="http://a/v1", api_key="k", model="m", use_completions_api="true"),
            {"engine": "completions", "url": "http://a/v1", "api_key": "k", "name": "m"},
        ),
        (
            model("genrm_model", base_url="http://a/v1", api_key="k", model="m", supports_principle="false"),
            {"engine": "genrm", "url": "http://a/v1", "api_key": "k", "name": "m", "supports_principle": False},
        ),
    ],
)  # fmt: skip
def test_d1_d3_kinds_of_models(resolved, write, block, expected):
    write("a.yaml", block)
    found = resolved("--config", "a.yaml").translation.checked()
    assert found.settings == {"model": expected}
    assert not found.remarks
    Settings.model_validate(found.settings)


def test_d1_the_shipped_model_files_are_settings(resolved, write):
    write("env.yaml", POLICY)
    for kind, stem in MODELS:
        more = (
            ["++policy_model.responses_api_models.azure_openai_model.default_query={api-version: x}"]
            if kind.startswith("azure")
            else []
        )
        found = resolved("--config", f"responses_api_models/{kind}/configs/{stem}.yaml", *more).translation.checked()
        settings = Settings.model_validate(found.settings)
        assert (settings.model.url, settings.model.name) == ("http://h:1/v1", "m")


def test_e3_the_policy_may_be_three_keys_alone(resolved, write):
    write("env.yaml", POLICY)
    found = resolved("--resources-server", "mcqa").translation.checked()
    assert found.settings == {"model": {"url": "http://h:1/v1", "api_key": "sk-1", "name": "m"}}


def test_e4_the_policy_may_have_another_name_but_there_is_one(resolved, write):
    other = model("openai_model", openai_base_url="http://h/v1", openai_api_key="k", openai_model="m").replace(
        "policy_model", "mine"
    )
    write("a.yaml", other + PAIR.replace("name: policy_model", "name: mine"))
    found = resolved("--config", "a.yaml").translation.checked()
    assert found.settings["model"]["url"] == "http://h/v1"
    write("env.yaml", POLICY)
    with pytest.raises(
        ConfigurationError, match=r"lenient_agent\.\S+\.model_server \(a\.yaml\): a pipeline has one policy, here policy_model"
    ):
        resolved("--config", "a.yaml", "--resources-server", "mcqa").translation.checked()


@pytest.mark.parametrize(
    ("change", "said"),
    [
        (("resources_servers:", "resource_servers:"), r"lenient\.resource_servers \(a\.yaml\): this is no kind of servers; did you mean 'resources_servers'\?"),
        (("domain: knowledge", "domain: knowlege"), r"lenient\.resources_servers\.mcqa\.domain \(a\.yaml\): 'knowlege' is no domain; did you mean 'knowledge'"),
        (("domain: knowledge, ", ""), "it has no domain; there are: math, coding"),
        (("mcqa: {", "mcqaa: {"), r"lenient\.resources_servers\.mcqaa \(a\.yaml\): there is no environment 'mcqaa' here; did you mean 'mcqa'\?"),
        (("mcqa: {entrypoint: app.py, ", "mcqa: {"), "it looks like a server and has no entrypoint"),
        (("mcqa: {", "ruler: {entrypoint: x}\n    mcqa: {"), "expected one implementation, found mcqa, ruler"),
        (("name: lenient}", "name: lenien}"), r"resources_server \(a\.yaml\): no block of resources_servers is called 'lenien'; did you mean 'lenient'"),
        (("{type: resources_servers, name: lenient}", "lenient"), r"refer to a server as \{type: resources_servers, name: INSTANCE\}"),
        (("simple_agent:\n      entry", "simple_agnt:\n      entry"), r"simple_agnt \(a\.yaml\): there is no agent 'simple_agnt' here; did you mean 'simple_agent'"),
        (("max_steps: 2", "max_step: 2"), r"max_step \(a\.yaml\): simple_agent has no such option; did you mean 'max_steps'"),
        (("max_steps: 2", "max_steps: -2"), r"max_steps \(a\.yaml\): Input should be greater than or equal to 0"),
        (("grading_mode:", "gradingmode:"), r"gradingmode \(a\.yaml\): mcqa has no such option; did you mean 'grading_mode'"),
        (("lenient_boxed", "generous"), r"grading_mode \(a\.yaml\): Input should be "),
    ],
)  # fmt: skip
def test_e4_an_error_names_the_key_the_file_and_the_nearest_word(resolved, write, change, said):
    assert change[0] in PAIR
    write("a.yaml", POLICY + PAIR.replace(*change))
    with pytest.raises(ConfigurationError, match=said):
        resolved("--config", "a.yaml").translation.checked()


def test_e3_almost_servers_may_be_let_pass(resolved, write):
    write("a.yaml", POLICY + "error_on_almost_servers: false\nbad:\n  resources_servers: {mcqa: {domain: math}}\n")
    found = resolved("--config", "a.yaml").translation.checked()
    assert said(found, Level.IGNORED) == [
        "bad.resources_servers.mcqa (a.yaml): it looks like a server and has no entrypoint; is the name of the instance right?"
    ]


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("vllm_modl: {entrypoint: a}", r"there is no model server 'vllm_modl'; did you mean 'vllm_model'"),
        ("local_vllm_model: {entrypoint: a}", "rollstream starts no engine"),
        ("vllm_model: {entrypoint: a, base_url: http://h, model: m, uses_reasoning_parsers: true}", r"uses_reasoning_parsers \(a\.yaml\): vllm_model has no such option; did you mean 'uses_reasoning_parser'"),
        ("vllm_model: {entrypoint: a, model: m}", r"base_url \(a\.yaml\): a vllm_model needs it"),
        ("vllm_model: {entrypoint: a, base_url: http://h}", "name the model that is served at"),
        ("openai_model: {entrypoint: a, openai_base_url: http://h, openai_model: m, max_concurrent_requests: 0}", r"max_concurrent_requests \(a\.yaml\): Input should be greater"),
        ("openai_model: {entrypoint: a, openai_base_url: http://h, openai_model: m, chat_template_kwargs: {a: 1}}", "has no use for chat_template_kwargs"),
    ],
)  # fmt: skip
def test_d1_a_wrong_model_block_is_said(resolved, write, text, said):
    write("a.yaml", f"policy_model:\n  responses_api_models:\n    {text}\n")
    with pytest.raises(ConfigurationError, match=said):
        resolved("--config", "a.yaml").translation.checked()


def test_e3_what_has_no_effect_is_noted_and_what_nobody_knows_is_listed(resolved, write):
    write("a.yaml", f"{POLICY}{PAIR.replace('num_workers: 3', 'colour: red')}my_url: x\nunused: 1\nuse_absolute_ip: true\nskip_verification: true\n"
          "z_model:\n  responses_api_models: {vllm_model: {entrypoint: a, base_url: '${my_url}', model: m, gpus: 8}}\n")  # fmt: skip
    found = resolved("--config", "a.yaml").translation.checked()
    assert [line.split(" (")[0] for line in said(found, Level.IGNORED)] == [
        "unused", "skip_verification", "z_model.responses_api_models.vllm_model.gpus", "lenient.resources_servers.mcqa.colour",
    ]  # fmt: skip
    assert said(found, Level.NOTE) == ["use_absolute_ip (a.yaml): has no effect: " + keys.NO_EFFECT["use_absolute_ip"]]
    with pytest.raises(
        ConfigurationError, match=r"polcy_base_url \(command line\): unknown key; did you mean policy_base_url\?"
    ):
        resolved("--config", "a.yaml", "+polcy_base_url=x").translation.checked()


def test_e3_every_key_of_the_reference_is_in_one_table():
    tables = [keys.POLICY_KEYS, keys.COMMAND_KEYS, keys.HUB_KEYS, keys.NO_EFFECT.keys(), keys.NOT_YET.keys(), keys.HANDLED]
    assert sum(map(len, tables)) == len(keys.ALL)
    named = """policy_base_url policy_api_key policy_model_name hf_token hf_organization hf_collection_name hf_collection_slug
        hf_dataset_prefix use_absolute_ip port_range_low port_range_high head_server results_dir cache_dir dry_run
        error_on_almost_servers model_endpoint_readiness_timeout_seconds skip_verification skip_verification_reward
        observability_enabled model_call_capture_dir token_id_capture profiling_enabled profiling_results_dirpath
        num_samples_in_parallel resume_from_cache input_jsonl_fpath output_jsonl_fpath agent_name"""
    assert not set(named.split()) - keys.ALL


def test_e2_files_that_values_name_are_found_through_the_roots_or_left_to_the_environment(resolved, write, tmp_path):
    prompt = write("mine/resources_servers/xstest/prompts/p.txt", "{question} {response}\n")
    block = "s:\n  resources_servers:\n    xstest: {entrypoint: a, domain: safety, judge_prompt_template_fpath: NAME}\n"
    write("a.yaml", POLICY + block.replace("NAME", "prompts/p.txt"))
    found = resolved("--config", "a.yaml", "--search-dir", "mine").translation.checked()
    assert (tmp_path / found.settings["variants"]["s"]["config"]["judge_prompt_template_fpath"]).samefile(prompt)
    found = resolved("--config", "a.yaml").translation.checked()
    assert "config" not in found.settings["variants"]["s"]
    assert said(found, Level.IGNORED)[0].endswith("there is no file prompts/p.txt; the environment's own is used")


def test_two_blocks_for_one_model_are_an_error(resolved, write):
    one = "responses_api_models: {vllm_model: {entrypoint: a, base_url: http://h, model: m}}"
    write("a.yaml", f"{POLICY}judge_model: {{{one}}}\njudge: {{{one}}}\n")
    with pytest.raises(ConfigurationError, match=r"another block is models\.judge already"):
        resolved("--config", "a.yaml").translation.checked()


def test_our_own_manifest_is_read_as_what_it_means(resolved, write, shipped_registry):
    folder = shipped_registry.entry_of("xstest").folder
    found = resolved("--config", str(folder / "config.yaml"), "+policy_base_url=scripted").translation.checked()
    assert set(found.agents) == {"xstest_simple_agent", "xstest_wildguard_simple_agent"}
