"""`rollstream convert`: a configuration written for NeMo Gym as a settings file of ours."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Annotated, Any

import typer

from rollstream.cli.common import UsageError, add, say


def register(app: typer.Typer) -> None:
    add(app, convert, "About")


def convert(
    words: Annotated[
        list[str] | None,
        typer.Argument(metavar="CONFIG.yaml|KEY=VALUE…", help="Files, and words over them.", show_default=False),
    ] = None,
    search: Annotated[
        list[Path] | None, typer.Option("--search-dir", metavar="DIR", help="Where files are looked for.")
    ] = None,
    output: Annotated[
        Path | None, typer.Option("--output", "-o", metavar="FILE.yaml", help="Instead of standard output.")
    ] = None,
) -> None:
    """A configuration of NeMo Gym (YAML files, env.yaml, key=value words) as a settings file of ours.

    Models, judges and environments of your own are in it; secrets are not, but the names of the variables that they go into.
    What has no meaning here is said.

      rollstream convert my_config.yaml ++judge_model.responses_api_models.vllm_model.model=big-judge -o rollstream.yaml
    """
    from rollstream.nemo_gym.calls import new_call
    from rollstream.nemo_gym.resolving import resolve

    flags = [arg for word in words or [] if _is_file(word) for arg in ("--config", word)]
    flags += [arg for folder in search or [] for arg in ("--search-dir", str(folder))]
    resolved = resolve(new_call(["env", "resolve", *flags, *(w for w in words or [] if not _is_file(w))]))
    for warning in resolved.merged.warnings:
        say(f"note: {warning}")
    for remark in resolved.translation.remarks:
        say(f"{remark.level.value}: {remark}")
    text = _text(resolved.translation.checked().settings)
    if output is None:
        typer.echo(text, nl=False)
    elif output.exists():
        raise UsageError(f"{output} is there already; choose another name")
    else:
        output.write_text(text, "utf-8")
        say(f"written: {output}; use it with --config {output}, or by that name as rollstream.yaml in the working directory")


def _is_file(word: str) -> bool:
    return "=" not in word and word.endswith((".yaml", ".yml"))


def _text(settings: Mapping[str, Any]) -> str:
    import yaml

    from rollstream.settings.load import variable

    hidden: list[str] = []
    plain = _without_secrets(settings, "", hidden)
    lines = [f"# {key}: put it into {variable(key)}\n" for key in hidden]
    return "".join(lines) + (yaml.safe_dump(plain, sort_keys=False, allow_unicode=True) if plain else "")


def _without_secrets(value: Any, key: str, hidden: list[str]) -> Any:
    """The settings without secrets, whose keys go into `hidden`; a header that hides its value hides them all."""
    from rollstream.nemo_gym.masking import is_secret

    def kept() -> Iterator[tuple[str, Any]]:
        for name, inner in value.items():
            dotted = f"{key}.{name}" if key else str(name)
            if is_secret(str(name), inner) or (str(name).endswith("headers") and inner):
                hidden.append(dotted)
            else:
                yield name, _without_secrets(inner, dotted, hidden)

    return dict(kept()) if isinstance(value, dict) else value
