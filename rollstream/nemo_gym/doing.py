"""What a call does: one of our commands, said and then run, or something done here.

Invariant: what was not understood is said before anything starts, and an error starts nothing.
"""

from __future__ import annotations

import os
import shlex
from collections.abc import Callable, Mapping
from contextlib import AbstractContextManager, nullcontext
from dataclasses import replace
from pathlib import Path
from typing import Any

from rollstream.nemo_gym import answers, reaching, running
from rollstream.nemo_gym.arguments import command_of, options
from rollstream.nemo_gym.calls import Call, old_call
from rollstream.nemo_gym.errors import ConfigurationError, Level
from rollstream.nemo_gym.export import variables
from rollstream.nemo_gym.keys import HUB_KEYS
from rollstream.nemo_gym.merging import COMMAND_LINE, CONFIG_PATHS, ENV_FILE
from rollstream.nemo_gym.overrides import Mode, tree
from rollstream.nemo_gym.resolving import Resolved, resolve
from rollstream.settings.mask import mask_urls

Say = Callable[[str], None]

READINESS_S = 600.0
"""How long the reference waits for a model's endpoint (platform.md E3)."""

_CONFIGURED = frozenset(
    {"env start", "env resolve", "env validate", "eval run", "eval reverify", "eval prepare", "dataset collate"}
)
"""Words that read the whole configuration; the others read env.yaml at most."""

_MODELLED = frozenset({"env start", "eval run"})
_HUB = {"hf_token": "HF_TOKEN", "wandb_api_key": "WANDB_API_KEY", "mlflow_tracking_uri": "MLFLOW_TRACKING_URI",
        "mlflow_tracking_token": "MLFLOW_TRACKING_TOKEN"}  # fmt: skip
"""Where the clients of the Hub and of trackers look for their keys."""


def do(call: Call, say: Say, run: Callable[[list[str]], Any]) -> Any:
    """Carry out a call: `say` is for people, `run` runs one of our commands. Raises `ConfigurationError`."""
    if call.help:
        return answers.help_of(call, say)
    if call.word.instead:
        raise ConfigurationError(f"{call.typed} has no counterpart here: {call.word.instead}")
    if call.word.name not in _CONFIGURED:
        return _plain(call, say, run)
    call = _with_running(call, say)
    resolved = resolve(call)
    for warning in resolved.merged.warnings:
        say(f"note: {warning}")
    if call.word.does:
        return answers.answer(call, resolved, say)
    for remark in resolved.translation.remarks:
        if remark.level is not Level.ERROR:
            say(f"{remark.level.value}: {remark}")
    resolved.translation.checked()
    return _ours(call, resolved, say, run)


def _plain(call: Call, say: Say, run: Callable[[list[str]], Any]) -> Any:
    if call.word.does or (call.word.name.startswith("list ") and call.names):
        return answers.answer(call, None, say)
    values = tree(call.overrides)
    if call.word.name.startswith("dataset "):
        values = {**resolve(replace(call, configs=[])).translation.command, **values}
    name, has = command_of(call.word, call.typed)
    given, left = options(call.word, {**values, "name": _names(call, values) or None}, has)
    _tell_left(call, name, [k for k in left if k not in HUB_KEYS | {CONFIG_PATHS}])
    os.environ.update({theirs: str(values[ours]) for ours, theirs in _HUB.items() if values.get(ours)})
    arguments = [*name.split(), *given]
    say(f"{call.typed} is `{mask_urls(shlex.join(['rollstream', *arguments]))}` here")
    return run(arguments)


def _names(call: Call, values: Mapping[str, Any]) -> list[str]:
    """Names of environments: given as they are, by a selector, or as the reference's folder (resources_servers/NAME)."""
    entry = values.get("entrypoint") or values.get("name")
    folders = [Path(str(entry)).name] if entry else []
    return [*(value.split("/")[0] for _, value in call.selectors), *folders, *(Path(n).name for n in call.names)]


def _ours(call: Call, resolved: Resolved, say: Say, run: Callable[[list[str]], Any]) -> Any:
    translation = resolved.translation
    name, has = command_of(call.word, call.typed)
    values = {k: v for k, v in translation.command.items() if k not in HUB_KEYS}
    given, left = options(call.word, _usual(call, values), has)
    _say_left(call, name, [k for k in left if k not in (CONFIG_PATHS, *_ALREADY)], resolved, say)
    arguments = [*name.split(), *_environments(call, resolved, values), *given, *_search(call, has)]
    os.environ.update(variables(translation.settings))
    os.environ.update(
        {theirs: str(translation.command[ours]) for ours, theirs in _HUB.items() if translation.command.get(ours)}
    )
    say(f"{call.typed} is `{mask_urls(shlex.join(['rollstream', *arguments]))}` here")
    _say_settings(resolved, say)
    _check_models(call, resolved, say)
    if values.get("dry_run"):
        say("dry_run: nothing is started")
        return 0
    with _word_left(call):
        return run(arguments)


_ALREADY = ("error_on_almost_servers", "model_endpoint_readiness_timeout_seconds", "no_serve", "json", "everything")


def _usual(call: Call, values: dict[str, Any]) -> dict[str, Any]:
    """The values with what the reference would take where nothing is said."""
    folder = values.get("results_dir")
    if call.word.name == "eval run" and folder and not values.get("output_jsonl_fpath"):
        return {**values, "output_jsonl_fpath": str(Path(str(folder)) / "rollouts.jsonl")}
    return values


def _environments(call: Call, resolved: Resolved, values: Mapping[str, Any]) -> list[str]:
    """Which environments, or which rows: of the configuration, unless the call names rows itself."""
    variants = list(dict.fromkeys(resolved.translation.agents.values()))
    chosen = [arg for v in variants for arg in ("--environment", v)]
    if call.word.name == "env start":
        if not variants:
            raise ConfigurationError(
                f"{call.typed}: no environment is configured; name one: '+{CONFIG_PATHS}=[…]' or --config PATH"
            )
        return chosen
    if call.word.name != "eval run" or values.get("input_jsonl_fpath") or values.get("resume_from_cache"):
        return []
    return _rows(call, resolved, values) or chosen


def _rows(call: Call, resolved: Resolved, values: Mapping[str, Any]) -> list[str]:
    """The dataset of the configuration that the call means, when it is a file here."""
    split = values.get("split") or "example"
    entries = [d for found in resolved.translation.datasets.values() for d in found if d.get("type") == split]
    paths = [p for d in entries if (p := resolved.roots.find(str(d.get("jsonl_fpath"))))]
    if entries and len(paths) == 1 and len(entries) == 1:
        return ["--input", str(paths[0])]
    if values.get("split") or (entries and not paths):
        named = ", ".join(str(d.get("jsonl_fpath")) for d in entries) or "none"
        if values.get("split") or not resolved.translation.agents:
            raise ConfigurationError(
                f"{call.typed}: split {split!r} means the files {named}; one file that is here is needed: collate them "
                "(`gym dataset collate`), then name it with --input"
            )
    return []


def _search(call: Call, has: frozenset[str]) -> list[str]:
    return [arg for folder in call.search for arg in ("--search-dir", folder)] if "--search-dir" in has else []


def _tell_left(call: Call, name: str, left: list[str]) -> None:
    if left:
        raise ConfigurationError.of(
            f"{key}: `rollstream {name}`, which {call.typed} is here, has nothing for it" for key in left
        )


def _say_left(call: Call, name: str, left: list[str], resolved: Resolved, say: Say) -> None:
    """What the call itself sets is refused; what a file has may be for another word."""
    where = {key: resolved.merged.where(key.split(".")) for key in left}
    for key, source in where.items():
        if source != COMMAND_LINE:
            say(f"{Level.IGNORED.value}: {key} ({source}): `rollstream {name}` has nothing for it")
    _tell_left(call, name, [key for key, source in where.items() if source == COMMAND_LINE])


def _say_settings(resolved: Resolved, say: Say) -> None:
    settings = resolved.translation.settings
    policy = {"policy": settings["model"]} if settings.get("model") else {}
    for name, model in (policy | settings.get("models", {})).items():
        say(f"  model {name}: {model.get('name', '–')} at {mask_urls(str(model.get('url', '–')))}")
    for name, variant in settings.get("variants", {}).items():
        say(f"  variant {name} of {variant['environment']}, agent {variant['agent']['name']}")


def _check_models(call: Call, resolved: Resolved, say: Say) -> None:
    """Endpoints answer before anything slow starts; who has no model is told where one is named."""
    if call.word.name not in _MODELLED:
        return
    from rollstream.settings import load

    settings = resolved.translation.settings
    if load().origins["model.url"] == "default":
        raise ConfigurationError(
            f"{call.typed}: no model is named: set policy_base_url, policy_api_key and policy_model_name in {ENV_FILE} (or as "
            "words, +policy_base_url=…), or try it without one: +policy_base_url=scripted"
        )
    limit = resolved.translation.command.get("model_endpoint_readiness_timeout_seconds", READINESS_S)
    for model in (settings.get("model", {}), *settings.get("models", {}).values()):
        wrong = reaching.wait(model, float(limit), say) if limit else None
        if wrong:
            raise ConfigurationError(f"{call.typed}: {wrong}")


_SERVING = frozenset({"head_server", "port", "json", "dry_run", "verbose"})
"""What a call says about itself, not about the configuration."""


def _with_running(call: Call, say: Say) -> Call:
    """The call with the configuration of an `ng_run` in this folder, where it names none of its own."""
    own = call.configs or call.selectors or any(o.path == (CONFIG_PATHS,) for o in call.overrides)
    arguments = None if own or call.word.name not in ("eval run", "eval reverify") else running.found()
    if arguments is None:
        return call
    say("the configuration of the ng_run in this folder is taken")
    left = old_call("ng_run", arguments)
    shared = [o for o in left.overrides if o.path[0] not in _SERVING]
    return replace(call, configs=left.configs, selectors=left.selectors, search=[*call.search, *left.search],
                   overrides=[*shared, *call.overrides])  # fmt: skip


def _word_left(call: Call) -> AbstractContextManager[Any]:
    if call.word.name != "env start":
        return nullcontext()
    words = [f"~{o.key}" if o.mode is Mode.DELETE else f"++{o.key}={answers.written(o.value)}" for o in call.overrides]
    flags = [a for c in call.configs for a in ("--config", c)] + [a for k, v in call.selectors for a in (f"--{k}", v)]
    return running.left([*words, *flags, *(a for s in call.search for a in ("--search-dir", s))])
