"""The reference's command words (platform.md E5) and which of our commands each is.

Owns names alone: words, the configuration key of each of their flags, and the option of ours that each key becomes. Invariant:
every word of E5 is in the tables; what ours has no command for says what to do instead.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

POSITIONAL = ""
"""In `Word.options`: the value stands by itself."""


FLAGS: Mapping[str, str] = {
    "--model": "policy_model_name",
    "-m": "policy_model_name",
    "--model-url": "policy_base_url",
    "--model-api-key": "policy_api_key",
    "--agent": "agent_name",
    "-a": "agent_name",
    "--input": "input_jsonl_fpath",
    "-i": "input_jsonl_fpath",
    "--output": "output_jsonl_fpath",
    "-o": "output_jsonl_fpath",
    "--input-glob": "input_glob",
    "--inputs": "materialized_inputs_jsonl_fpath",
    "--rollouts": "rollouts_jsonl_fpath",
    "--limit": "limit",
    "--num-repeats": "num_repeats",
    "--prompt-config": "prompt_config",
    "--concurrency": "num_samples_in_parallel",
    "--split": "split",
    "--temperature": "responses_create_params.temperature",
    "--top-p": "responses_create_params.top_p",
    "--max-output-tokens": "responses_create_params.max_output_tokens",
    "--mode": "mode",
    "--output-dir": "output_dirpath",
    "--storage": "storage",
    "--name": "dataset_name",
    "--revision": "revision",
    "--repo-id": "repo_id",
    "--artifact": "artifact_fpath",
    "--domain": "domain",
    "--kind": "kind",
    "--profile": "profile",
    "--reuse-verifier": "reuse_verifier",
    "--reward-range": "reward_range",
    "--modality": "modality",
    "--licensing": "licensing",
    "--status": "status",
    "--lifecycle": "lifecycle",
    "--manifest": "manifest",
}
"""Flags with a value, and the key of the same meaning."""

SWITCHES: Mapping[str, tuple[str, object]] = {
    "--resume": ("resume_from_cache", True),
    "--no-serve": ("no_serve", True),
    "--disable-aggregation": ("disable_aggregation", True),
    "--force": ("force", True),
    "--overwrite": ("overwrite", True),
    "--judge-failed-only": ("judge_failed_only", True),
    "--append": ("append", True),
    "--download": ("should_download", True),
    "--create-pr": ("create_pr", True),
    "--json": ("json", True),
    "--update-expected": ("update_expected", True),
    "--higher-is-better": ("higher_is_better", True),
    "--lower-is-better": ("higher_is_better", False),
    "--dry-run": ("dry_run", True),
    "--outdated": ("outdated", True),
    "--sync": ("sync", True),
    "--verbose": ("verbose", True),
    "-v": ("verbose", True),
    "--all": ("everything", True),
}
"""Flags without a value, and what they set."""

SELECTORS = ("--benchmark", "--environment", "--resources-server", "--model-type")
"""Flags that name a configuration by NAME or NAME/FLAVOUR."""

TRUE_FALSE = "|"
"""In `Word.options`: `--yes|--no`, by the value; a part may be empty."""


@dataclass(frozen=True, slots=True)
class Word:
    """A command of the reference.

    `ours`: names of our command, the first that exists is taken; none for what is done here (`does`) or not at all
    (`instead`). `options`: keys to options of ours, several as alternatives. `what` is a line of help.
    """

    name: str
    what: str
    ours: tuple[str, ...] = ()
    options: Mapping[str, str] = field(default_factory=dict)
    does: str | None = None
    instead: str | None = None


_RUN = {
    "agent_name": "--agent",
    "input_jsonl_fpath": "--input",
    "output_jsonl_fpath": "--output",
    "limit": "--limit",
    "num_repeats": "--repeats",
    "num_repeats_add_seed": "--seeds|",
    "num_samples_in_parallel": "--concurrency",
    "resume_from_cache": "--resume|",
    "prompt_config": "--prompt-config",
    "skills.path": "--skills",
    "disable_aggregation": "--no-aggregate|",
}

_SERVE = {"head_server.port": "--port", "head_server.host": "--host", "port": "--port", "json": "--json|"}

_REVERIFY = {
    "rollouts_jsonl_fpath": POSITIONAL,
    "input_jsonl_fpath": POSITIONAL,
    "materialized_inputs_jsonl_fpath": "--inputs",
    "output_jsonl_fpath": "--output",
    "limit": "--limit",
    "num_samples_in_parallel": "--concurrency",
    "force": "--force|",
    "overwrite": "--overwrite|",
    "resume_from_cache": "--resume|",
    "disable_aggregation": "--disable-aggregation|",
    "judge_failed_only": "--judge-failed-only|",
    "append": "--append|",
}

_HUB = {
    "storage": "--storage",
    "dataset_name": "--name",
    "repo_id": "--repo-id",
    "artifact_fpath": "--artifact",
    "revision": "--revision",
    "split": "--split",
    "input_jsonl_fpath": "--input",
    "output_fpath": "--output",
    "output_jsonl_fpath": "--output",
    "output_dirpath": "--output-dir",
    "create_pr": "--create-pr|",
}

_PREPARE = {
    "mode": "--mode",
    "output_dirpath": "--output-dir",
    "should_download": "--download|",
    "overwrite_metrics_conflicts": "--overwrite-metrics-conflicts|",
    "data_source": "--data-source",
    "skip_invalid_rows": "--skip-invalid|",
}

_LIST = {"json": "--json|", "domain": "--domain"}
_CHECK = {"name": POSITIONAL, "everything": "--all|", "update_expected": "--update-expected|", "json": "--json|"}

WORDS: tuple[Word, ...] = (
    Word("env start", "serve environments and their agents over HTTP", ("serve",), _SERVE),
    Word("env status", "how runs stand", ("status",), {"json": "--json|"}),
    Word("env resolve", "print the final configuration, secrets masked", does="resolve"),
    Word("env validate", "check the final configuration in seconds", does="validate"),
    Word("env prefetch", "fetch an environment's data", ("environment fetch",), {"name": POSITIONAL}),
    Word("env packages", "what environments need", ("environments",), {"json": "--json|"}),
    Word("env init", "begin an environment of one's own", ("environment new",), {"name": POSITIONAL}),
    Word("env test", "check an environment", ("environment check",), _CHECK),
    Word("env publish", "checks before publishing", ("environment check",), _CHECK),
    Word("eval prepare", "fetch and check datasets", ("prepare", "dataset prepare"), _PREPARE),
    Word("eval run", "rollouts from start to score", ("run",), _RUN),
    Word(
        "eval aggregate",
        "shards as one run",
        ("aggregate",),
        {
            "input_glob": POSITIONAL,
            "input_jsonl_fpath": POSITIONAL,
            "output_jsonl_fpath": "--output",
            "merge_shards": "--merge|--no-merge",
        },
    ),
    Word("eval reverify", "score stored rollouts again", ("reverify",), _REVERIFY),
    Word(
        "eval profile",
        "mean and spread of each task",
        ("profile",),
        {
            "rollouts_jsonl_fpath": "--rollouts",
            "materialized_inputs_jsonl_fpath": "--inputs",
            "input_jsonl_fpath": "--rollouts",
        },
    ),
    Word(
        "eval submit",
        "cluster jobs",
        instead="deploy/ has manifests for Kubernetes; on Slurm a job is so many `rollstream worker` (docs/operations.md)",
    ),
    Word("dataset collate", "validate and join datasets", ("prepare", "dataset prepare", "dataset collate"), _PREPARE),
    Word(
        "dataset render",
        "prompts into a dataset",
        ("render", "dataset render"),
        {"input_jsonl_fpath": "--input", "prompt_config": "--prompt-config", "output_jsonl_fpath": "--output"},
    ),
    Word("dataset upload", "a dataset to the Hub", ("dataset upload",), _HUB),
    Word("dataset download", "a dataset from the Hub", ("dataset download",), _HUB),
    Word("dataset rm", "delete a dataset", ("dataset rm",), _HUB),
    Word("dataset migrate", "from GitLab to the Hub", ("dataset migrate",), _HUB),
    Word("list environments", "the environments there are", ("environments",), _LIST),
    Word("list benchmarks", "the environments there are; benchmarks are variants", ("environments",), _LIST),
    Word("list resources-servers", "the environments there are", ("environments",), _LIST),
    Word("list agents", "the agents there are", does="agents"),
    Word("list models", "the model servers that are understood", does="models"),
    Word("search", "environments by a word", does="search"),
    Word(
        "view", "stored rollouts, one after the other", ("view",), {"jsonl_fpath": POSITIONAL, "input_jsonl_fpath": POSITIONAL}
    ),
    Word("version", "versions", ("version",), {"json": "--json|"}),
    Word("help", "these words", does="help"),
)

OLD: Mapping[str, str] = {
    "run": "env start",
    "status": "env status",
    "dump_config": "env resolve",
    "validate": "env validate",
    "pip_list": "env packages",
    "init_resources_server": "env init",
    "test": "env test",
    "test_all": "env test --all",
    "collect_rollouts": "eval run",
    "e2e_collect_rollouts": "eval run",
    "aggregate_rollouts": "eval aggregate",
    "reverify": "eval reverify",
    "reward_profile": "eval profile",
    "prepare_benchmark": "eval prepare",
    "prepare_data": "dataset collate",
    "materialize_prompts": "dataset render",
    "upload_dataset_to_hf": "dataset upload",
    "download_dataset_from_hf": "dataset download",
    "upload_dataset_to_gitlab": "dataset upload --storage gitlab",
    "download_dataset_from_gitlab": "dataset download --storage gitlab",
    "delete_dataset_from_gitlab": "dataset rm --storage gitlab",
    "gitlab_to_hf_dataset": "dataset migrate",
    "list_benchmarks": "list benchmarks",
    "viewer": "view",
    "version": "version",
    "help": "help",
}
"""The older words, without their prefix (`ng_`), and the newer one that each is."""

ALIASES: Mapping[str, str] = {"env run": "env start", "env dump": "env resolve"}


def word(name: str) -> Word:
    """The word called `name`; raises `KeyError`."""
    return next(w for w in WORDS if w.name == name)
