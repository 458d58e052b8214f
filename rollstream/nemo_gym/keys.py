"""Top-level keys of a configuration that are no server blocks (platform.md E3, E5), and what becomes of each here.

Invariant: a key of the reference is in exactly one of these tables, so that none is passed over in silence.
"""

from __future__ import annotations

POLICY_KEYS = frozenset({"policy_base_url", "policy_api_key", "policy_model_name"})

COMMAND_KEYS = frozenset(
    {
        "agent_name",
        "input_jsonl_fpath",
        "output_jsonl_fpath",
        "limit",
        "num_repeats",
        "num_repeats_add_seed",
        "num_samples_in_parallel",
        "resume_from_cache",
        "prompt_config",
        "skills",
        "responses_create_params",
        "disable_aggregation",
        "merge_shards",
        "rollout_collection_driver",
        "split",
        "input_glob",
        "materialized_inputs_jsonl_fpath",
        "rollouts_jsonl_fpath",
        "force",
        "overwrite",
        "judge_failed_only",
        "append",
        "mode",
        "output_dirpath",
        "should_download",
        "overwrite_metrics_conflicts",
        "skip_invalid_rows",
        "data_source",
        "entrypoint",
        "should_validate_data",
        "name",
        "environment",
        "jsonl_fpath",
        "query",
        "json",
        "domain",
        "kind",
        "profile",
        "reuse_verifier",
        "reward_range",
        "higher_is_better",
        "update_expected",
        "everything",
        "storage",
        "dataset_name",
        "repo_id",
        "artifact_fpath",
        "revision",
        "create_pr",
        "output_fpath",
        "help",
        "h",
        "verbose",
        "dry_run",
        "results_dir",
        "all_environments",
        "port",
        "head_server",
        "no_serve",
        "outdated",
        "sync",
        "modality",
        "licensing",
        "status",
        "lifecycle",
        "manifest",
        "task",
        "version",
    }
)
"""What the command itself reads; `calls` says which of our flags each becomes."""

HUB_KEYS = frozenset(
    {
        "hf_token",
        "hf_organization",
        "hf_collection_name",
        "hf_collection_slug",
        "hf_dataset_prefix",
        "mlflow_tracking_uri",
        "mlflow_tracking_token",
        "mlflow_experiment_name",
        "wandb_project",
        "wandb_name",
        "wandb_api_key",
        "upload_rollouts",
    }
)
"""Of the Hub and of trackers: handed to the commands that use them."""

_SERVERS = "rollstream starts no servers for blocks: its workers meet on the broker"

_SHARED = "environments share this installation; their extras are installed with pip or uv"

NO_EFFECT = {
    "use_absolute_ip": _SERVERS,
    "default_host": _SERVERS,
    "head_server_deps": _SERVERS,
    "port_range_low": _SERVERS,
    "port_range_high": _SERVERS,
    "disallowed_ports": _SERVERS,
    "uvicorn_timeout_worker_healthcheck": _SERVERS,
    "ray_head_node_address": "no Ray here: to scale out, start more workers",
    "python_version": "environments run in this Python",
    "uv_cache_dir": _SHARED,
    "uv_venv_dir": _SHARED,
    "uv_pip_set_python": _SHARED,
    "pip_install_verbose": _SHARED,
    "skip_venv_if_present": _SHARED,
    "cache_dir": "what is cached lies in this user's data directory (claims.url, environments.data_dir)",
    "nemo_gym_log_dir": "logs go to stderr (log.level, log.format)",
    "allow_openai_version_skew": "there is one installation, so one version",
}
"""Keys that mean nothing here, and why."""

_PROFILE = "profile a worker from outside, with py-spy for instance"

NOT_YET = {
    "skip_verification": "every rollout is verified; score stored ones anew with `rollstream reverify`",
    "skip_verification_reward": "every rollout is verified; score stored ones anew with `rollstream reverify`",
    "observability_enabled": "the topics keep every turn already; `rollstream model serve` keeps the calls of other harnesses",
    "model_call_capture_dir": "the topics keep every turn already; `rollstream model serve` keeps the calls of other harnesses",
    "token_id_capture": "token ids are kept where the model returns them (return_token_id_information)",
    "profiling_enabled": _PROFILE,
    "profiling_results_dirpath": _PROFILE,
    "telemetry": "telemetry is a matter of each worker's own settings",
}
"""Keys whose effect is not had by the key; what is there instead."""

HANDLED = frozenset({"config_paths", "error_on_almost_servers", "model_endpoint_readiness_timeout_seconds"})

ALL = POLICY_KEYS | COMMAND_KEYS | HUB_KEYS | NO_EFFECT.keys() | NOT_YET.keys() | HANDLED
