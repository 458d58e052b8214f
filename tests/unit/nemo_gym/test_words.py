"""The reference's command words (platform.md E5): which of ours each is, with which arguments, and what is said."""

import json
import os
import re
import tomllib
from itertools import pairwise
from pathlib import Path

import pytest
import yaml

from rollstream.nemo_gym import keys, running
from rollstream.nemo_gym.calls import new_call, old_call
from rollstream.nemo_gym.errors import ConfigurationError
from rollstream.nemo_gym.words import FLAGS, OLD, SWITCHES, WORDS, word
from rollstream.settings import load

POLICY = "policy_base_url: scripted\npolicy_api_key: sk-policy-secret\npolicy_model_name: scripted\n"
MCQA = "+config_paths=[resources_servers/mcqa/configs/mcqa.yaml,responses_api_models/vllm_model/configs/vllm_model.yaml]"
ROOT = Path(__file__).parents[3]

NAMED = """ng_run ng_collect_rollouts ng_viewer ng_prepare_data ng_reward_profile ng_dump_config ng_test ng_init_resources_server
    ng_version ng_help ng_e2e_collect_rollouts ng_aggregate_rollouts ng_materialize_prompts ng_status ng_validate"""
NEWER = """env start|env status|env resolve|env validate|env prefetch|env packages|env init|env test|env publish|eval prepare|eval run
    |eval aggregate|eval reverify|eval profile|eval submit|dataset collate|dataset render|dataset upload|dataset download|dataset rm
    |dataset migrate|list benchmarks|list environments|list agents|list models|list resources-servers|search"""


def test_e5_every_word_is_there_and_every_older_one_a_program():
    scripts = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["scripts"]
    assert {n for n in scripts if n.startswith("ng_")} == {f"ng_{n}" for n in OLD} >= set(NAMED.split())
    assert scripts["gym"] == "rollstream.nemo_gym.main:gym"
    assert {w.name for w in WORDS} >= {n.strip() for n in NEWER.split("|")}
    for newer in OLD.values():
        assert word(newer.split(" --")[0])


def test_e5_every_flag_has_a_key_that_is_known():
    named = {k.split(".")[0] for k in FLAGS.values()} | {k for k, _ in SWITCHES.values()}
    assert named <= keys.ALL
    assert {k.split(".")[0] for w in WORDS for k in w.options} <= keys.ALL


def test_e5_options_of_ours_exist_where_the_command_does():
    import typer

    from rollstream.cli import app

    missing = []
    for w in WORDS:
        for name in w.ours[:1]:
            command = typer.main.get_command(app)
            for part in name.split():
                command = getattr(command, "commands", {}).get(part)
            if command is None:
                continue
            has = {o for p in command.params for o in (*p.opts, *p.secondary_opts)}
            missing += [f"{w.name}: {o}" for option in w.options.values() for o in option.split("|") if o and o not in has]
    assert missing == []


def test_e5_collect_rollouts_is_run_and_says_so(done, write):
    write("env.yaml", POLICY)
    write("rows.jsonl", "{}\n")
    ran, said, _ = done(
        "ng_collect_rollouts", MCQA, "+agent_name=mcqa_simple_agent", "+input_jsonl_fpath=rows.jsonl", "+output_jsonl_fpath=o/r.jsonl",
        "+limit=5", "+num_repeats=2", "+num_samples_in_parallel=3", "+resume_from_cache=true", "+num_repeats_add_seed=true",
        "+responses_create_params.temperature=0.5", "+responses_create_params={top_p: 0.9}", "+prompt_config=p.yaml",
    )  # fmt: skip
    assert ran[0] == "run"
    places = [a for a in ran if a.startswith("responses_create_params.")]
    assert sorted(places) == ["responses_create_params.temperature=0.5", "responses_create_params.top_p=0.9"]
    pairs = dict(pairwise(ran))
    for flag, value in {
        "--agent": "mcqa_simple_agent", "--input": "rows.jsonl", "--output": "o/r.jsonl", "--limit": "5", "--repeats": "2",
        "--concurrency": "3", "--prompt-config": "p.yaml",
    }.items():  # fmt: skip
        assert pairs[flag] == value
    assert {"--resume", "--seeds"} <= set(ran)
    assert any(line.startswith("ng_collect_rollouts is `rollstream run ") and line.endswith("` here") for line in said)
    settings = load().settings
    assert (settings.model.url, settings.model.engine.value) == ("scripted", "vllm")
    assert settings.model.api_key.get_secret_value() == "sk-policy-secret"
    assert "sk-policy-secret" not in "\n".join([*said, *ran])


def test_e5_the_newer_words_have_flags_for_the_same_keys(done, write):
    write("env.yaml", POLICY)
    write("rows.jsonl", "{}\n")
    ran, said, _ = done(
        "gym", "eval", "run", "--no-serve", "--environment", "mcqa", "--model-type", "openai_model", "-a", "mcqa_simple_agent",
        "-i", "rows.jsonl", "--output=o/r.jsonl", "--limit", "5", "--num-repeats", "{mcqa_simple_agent: 3, _default: 1}",
        "--concurrency", "3", "--temperature", "0.5", "--max-output-tokens", "64", "--disable-aggregation", "--search-dir", ".",
        "-m", "scripted", "--model-url", "scripted",
    )  # fmt: skip
    assert ran[:2] == ["run", "--agent"] or ran[0] == "run"
    repeats = [b for a, b in pairwise(ran) if a == "--repeats"]
    assert repeats == ["mcqa_simple_agent=3", "_default=1"]
    assert {"--no-aggregate", "--search-dir", "responses_create_params.max_output_tokens=64"} <= set(ran)
    assert said[0].startswith("gym eval run is `rollstream run")


def test_e5_without_rows_the_environments_of_the_configuration_run_their_examples(done, write):
    write("env.yaml", POLICY)
    ran, _, _ = done(
        "ng_e2e_collect_rollouts", MCQA, "+config_paths=[resources_servers/mcqa/configs/mcqa.yaml]", "results_dir=out"
    )
    assert ran == ["run", "--environment", "mcqa", "--output", "out/rollouts.jsonl"]


def test_f1_a_dataset_of_the_configuration_is_the_input(done, write):
    block = "a:\n  responses_api_agents:\n    simple_agent: {entrypoint: a, resources_server: {type: resources_servers, name: mcqa}, datasets: [{name: v, type: validation, jsonl_fpath: d/v.jsonl}]}\n"
    write("env.yaml", POLICY)
    write("c.yaml", block)
    with pytest.raises(
        ConfigurationError, match=r"split 'validation' means the files d/v\.jsonl; one file that is here is needed"
    ):
        done("gym", "eval", "run", "--config", "c.yaml", "--environment", "mcqa", "--split", "validation")
    write("d/v.jsonl", "{}\n")
    ran, _, _ = done("gym", "eval", "run", "--config", "c.yaml", "--environment", "mcqa", "--split", "validation")
    assert ran == ["run", "--input", "d/v.jsonl"]


def test_e5_run_serves_the_environments_and_leaves_word_for_collecting(done, write):
    write("env.yaml", POLICY)
    write("rows.jsonl", "{}\n")
    key = "mcqa_simple_agent.responses_api_agents.simple_agent.max_steps"
    said, seen = [], []

    def serve(argv):
        seen.append(argv)
        seen.append(done("ng_collect_rollouts", "+input_jsonl_fpath=rows.jsonl"))
        return 0

    from rollstream.nemo_gym.doing import do

    assert do(old_call("ng_run", [MCQA, f"++{key}=4", "+head_server.port=0"]), said.append, serve) == 0
    assert seen[0] == ["serve", "--environment", "mcqa", "--port", "0"]
    ran, said_then, _ = seen[1]
    assert ran == ["run", "--input", "rows.jsonl"]
    assert said_then[0] == "the configuration of the ng_run in this folder is taken"
    assert load().settings.variants["mcqa"].agent.config == {"max_steps": 4}
    assert running.found() is None  # it has ended


def test_e5_word_is_left_for_this_user_alone_and_dies_with_its_process(tmp_path, monkeypatch):
    with running.left(["+a=1"]) as path:
        assert path.stat().st_mode & 0o077 == 0
        assert running.found() == ["+a=1"]
        record = json.loads(path.read_text())
        path.write_text(json.dumps({**record, "started": 1.0}))  # the same process id, another process
        assert running.found() is None
        path.write_text("torn {")
        assert running.found() is None
    monkeypatch.chdir(tmp_path.parent)
    assert running.found() is None


def test_e5_dump_config_prints_the_tree_with_secrets_masked(done, write):
    write("env.yaml", POLICY + "other: copy of sk-policy-secret\nheaders: {X-Auth: abcdefgh}\nurl: http://u:p@h/?token=t\n")
    code, _, out = done("ng_dump_config", MCQA, "+wandb_api_key=w1")
    assert code == 0
    shown = yaml.safe_load(out)
    assert shown["policy_model"]["responses_api_models"]["vllm_model"]["api_key"] == "********"
    assert shown["mcqa"]["resources_servers"]["mcqa"]["domain"] == "knowledge"
    assert (shown["other"], shown["headers"]) == ("copy of ********", {"X-Auth": "********"})
    for secret in ("sk-policy-secret", "abcdefgh", "u:p@", "token=t", "w1\n"):
        assert secret not in out
    _, _, out = done("gym", "env", "resolve", MCQA, "--json")
    assert json.loads(out)["policy_api_key"] == "********"


def test_e5_validate_says_everything_and_starts_nothing(done, write):
    write("env.yaml", POLICY)
    write("rows.jsonl", 'not json\n{"responses_create_params": {"input": "x"}, "agent_ref": {"name": "mcqa_simple_agnt"}}\n')
    code, said, _ = done("ng_validate", MCQA)
    assert (code, said[-1]) == (0, "valid")
    code, said, _ = done("ng_validate", MCQA, "+input_jsonl_fpath=rows.jsonl", "+no_such=1")
    assert code == 3
    assert [line for line in said if "rows.jsonl:1: " in line]
    assert [line for line in said if "rows.jsonl:2: unknown agent" in line]
    assert "ignored: no_such (command line): unknown key, and nothing refers to it" in said
    code, _, out = done("gym", "env", "validate", MCQA, "++mcqa.resources_servers.mcqa.gradingmode=x", "--json")
    report = json.loads(out)
    assert (code, report["valid"]) == (3, False)
    assert "did you mean 'grading_mode'" in report["errors"][0]
    write("env.yaml", POLICY.replace("scripted", "http://127.0.0.1:9/v1", 1))
    code, said, _ = done("ng_validate", MCQA)
    assert code == 3
    assert any("model policy: http://127.0.0.1:9/v1 does not answer" in line for line in said)


def test_e5_nothing_is_started_on_an_error(done, write):
    write("env.yaml", POLICY)
    for arguments, said in [
        ((MCQA, "++mcqa.resources_servers.mcqa.domain=maths"), "'maths' is no domain; did you mean 'math'"),
        ((MCQA, "+num_repeat=2"), "num_repeat \\(command line\\): unknown key; did you mean num_repeats"),
        ((MCQA, "num_repeat=2"), "no file has this key"),
        ((MCQA, "+merge_shards=true"), "merge_shards: `rollstream run`, which ng_collect_rollouts is here, has nothing for it"),
    ]:
        with pytest.raises(ConfigurationError, match=said):
            done("ng_collect_rollouts", *arguments)
    with pytest.raises(ConfigurationError, match="no environment is configured"):
        done("ng_run")
    write("env.yaml", "")
    with pytest.raises(ConfigurationError, match=r"no model is named: set policy_base_url"):
        done("ng_collect_rollouts", "--environment", "mcqa")


def test_e5_a_key_of_a_file_that_the_word_has_no_use_for_is_said(done, write):
    write("env.yaml", f"{POLICY}merge_shards: false\n")
    ran, said, _ = done("ng_collect_rollouts", "--environment", "mcqa", "+limit=1")
    assert ran == ["run", "--environment", "mcqa", "--limit", "1"]
    assert "ignored: merge_shards (env.yaml): `rollstream run` has nothing for it" in said


def test_e5_dry_run_starts_nothing(done, write):
    write("env.yaml", POLICY)
    code, said, _ = done("ng_run", MCQA, "+dry_run=true")
    assert (code, said[-1]) == (0, "dry_run: nothing is started")


@pytest.mark.parametrize(
    ("arguments", "expected"),
    [
        (("ng_version",), ["version"]),
        (("gym", "--version", "--json"), ["version", "--json"]),
        (("ng_status",), ["status"]),
        (("ng_test", "+entrypoint=resources_servers/mcqa"), ["environment", "check", "mcqa"]),
        (("ng_test_all",), ["environment", "check", "--all"]),
        (("gym", "env", "test", "--resources-server", "mcqa", "--update-expected"), ["environment", "check", "--update-expected", "mcqa"]),
        (("ng_init_resources_server", "+entrypoint=resources_servers/my_env"), ["environment", "new", "my_env"]),
        (("gym", "env", "init", "--environment", "my_env"), ["environment", "new", "my_env"]),
        (("ng_viewer", "+jsonl_fpath=r.jsonl"), ["view", "r.jsonl"]),
        (("ng_reward_profile", "+rollouts_jsonl_fpath=r.jsonl", "+materialized_inputs_jsonl_fpath=i.jsonl"),
         ["profile", "--rollouts", "r.jsonl", "--inputs", "i.jsonl"]),
        (("gym", "eval", "profile", "--rollouts", "r.jsonl", "--inputs", "i.jsonl"), ["profile", "--rollouts", "r.jsonl", "--inputs", "i.jsonl"]),
        (("gym", "eval", "aggregate", "-i", "s-*.jsonl", "-o", "o.jsonl"), None),
        (("gym", "eval", "aggregate", "--input-glob", "s-*.jsonl", "-o", "o.jsonl"), ["aggregate", "--output", "o.jsonl", "s-*.jsonl"]),
        (("ng_aggregate_rollouts", "+input_glob=s-*.jsonl", "+output_jsonl_fpath=o.jsonl", "+merge_shards=false"),
         ["aggregate", "--output", "o.jsonl", "--no-merge", "s-*.jsonl"]),
        (("gym", "list", "environments", "--domain", "math", "--json"), ["environments", "--domain", "math", "--json"]),
    ],
)  # fmt: skip
def test_e5_other_words(done, arguments, expected):
    if expected is None:
        expected = ["aggregate", "--output", "o.jsonl", "s-*.jsonl"]
    ran, said, _ = done(*arguments)
    assert ran == expected
    assert re.fullmatch(r"\S.* is `rollstream .*` here", said[-1])


def test_e5_a_word_whose_command_this_version_lacks_says_so(monkeypatch, done, write):
    from rollstream.nemo_gym import words

    lost = words.Word("eval profile", "x", ("no such",))
    monkeypatch.setattr(words, "WORDS", (lost, *WORDS))
    with pytest.raises(
        ConfigurationError, match=r"ng_reward_profile is `rollstream no such` here, and this version has no such command yet"
    ):
        done("ng_reward_profile")


def test_e5_lists_help_and_what_has_no_counterpart(done):
    _, _, out = done("ng_help")
    for name in NAMED.split():
        assert name in out
    _, _, out = done("gym")
    assert "gym eval run" in out
    assert "simple_agent" in done("gym", "list", "agents")[2].splitlines()
    assert "vllm_model" in json.loads(done("gym", "list", "models", "--json")[2])
    assert (
        "xstest_wildguard  agent xstest_wildguard_simple_agent (simple_agent)"
        in done("gym", "list", "environments", "xstest")[2]
    )
    assert [line.split()[0] for line in done("gym", "search", "multiple-choice")[2].splitlines()] == ["mcqa"]
    with pytest.raises(ConfigurationError, match="there is no 'xtest'; did you mean 'xstest'"):
        done("gym", "list", "environments", "xtest")
    with pytest.raises(ConfigurationError, match="gym eval submit has no counterpart here: deploy/"):
        done("gym", "eval", "submit")
    for arguments in (("ng_run", "+help=true"), ("gym", "env", "start", "--help")):
        assert "Here: `rollstream serve`" in done(*arguments)[2]


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["env", "strat"], "there is no such word; did you mean 'env start'"),
        (["evil", "run"], "did you mean 'eval run'"),
        (["env"], "gym env: there is no such word"),
        (["eval", "run", "--limits", "3"], "there is no flag --limits; did you mean '--limit'"),
        (["eval", "run", "--limit"], "--limit needs a value"),
        (["eval", "run", "+a=[1"], "',' is missing"),
        (["eval", "run", "--num-repeats", "{a"], "is missing"),
    ],
)
def test_e5_a_wrong_word_gets_the_nearest(arguments, said):
    with pytest.raises(ConfigurationError, match=said):
        new_call(arguments)


def test_e5_the_longer_names_of_the_older_words_are_known():
    assert old_call("nemo_gym_run", []).word is word("env start")
    with pytest.raises(ConfigurationError, match="did you mean 'ng_run'"):
        old_call("ng_rum", [])


def test_hub_keys_become_variables_of_the_clients(done, write):
    write("env.yaml", f"{POLICY}hf_token: hf-secret-token\n")
    _, said, _ = done("ng_collect_rollouts", "--environment", "mcqa")
    assert os.environ["HF_TOKEN"] == "hf-secret-token"
    assert "hf-secret-token" not in "\n".join(said)
