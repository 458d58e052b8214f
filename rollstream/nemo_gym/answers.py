"""What is answered here, without a command of ours: the resolved configuration, whether it is valid, lists, help."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import Any

import yaml

from environments.extras import Extras
from environments.registry import Registry, agent_types
from environments.words import nearest
from rollstream.nemo_gym import reaching
from rollstream.nemo_gym.calls import Call
from rollstream.nemo_gym.errors import ConfigurationError
from rollstream.nemo_gym.masking import without_secrets
from rollstream.nemo_gym.resolving import Resolved
from rollstream.nemo_gym.served import kinds
from rollstream.nemo_gym.words import ALIASES, OLD, WORDS
from schemas import jsontext

Say = Callable[[str], None]

SHOWN = 20
"""Bad rows that are listed; how many more there are is said."""


def answer(call: Call, resolved: Resolved | None, say: Say) -> int:
    """Print the answer; the exit code."""
    if call.word.does == "resolve" and resolved is not None:
        return _resolve(call, resolved)
    if call.word.does == "validate" and resolved is not None:
        return _validate(call, resolved, say)
    if call.word.does == "help":
        return help_of(call, say)
    found = {"agents": agent_types, "models": kinds}.get(call.word.does or "", lambda: _environments(call))()
    _print(list(found), as_json=_wants_json(call))
    return 0


def written(value: Any) -> str:
    """A value as a word of the command line has it."""
    if isinstance(value, str):
        return "'" + value.replace("\\", "\\\\").replace("'", "\\'") + "'"
    if isinstance(value, dict):
        return "{" + ",".join(f"{written(str(k))}:{written(v)}" for k, v in value.items()) + "}"
    if isinstance(value, list):
        return f"[{','.join(map(written, value))}]"
    return "null" if value is None else str(value).lower() if isinstance(value, bool) else str(value)


def help_of(call: Call, say: Say) -> int:
    """The words and what each is here; of one word its keys."""
    if call.word.does == "help" or call.typed in ("gym --help", "ng_help"):
        _print(list(_table()), as_json=False)
        say("each takes key=value, +key=value and ++key=value, --config PATH and --search-dir DIR; docs/nemo-gym.md says more")
        return 0
    ours = f"`rollstream {call.word.ours[0]}`" if call.word.ours else call.word.instead or "done here"
    lines = [f"{call.typed}: {call.word.what}. Here: {ours}"]
    lines += [f"  {key:<34} {option or '(stands by itself)'}" for key, option in call.word.options.items()]
    _print(lines, as_json=False)
    return 0


def _table() -> Iterator[str]:
    older: dict[str, list[str]] = {}
    for name, newer in OLD.items():
        older.setdefault(newer.split(" --")[0], []).append(f"ng_{name}")
    for word in WORDS:
        ours = f"rollstream {word.ours[0]}" if word.ours else "has no counterpart" if word.instead else "done here"
        also = [*older.get(word.name, ()), *(f"gym {a}" for a, n in ALIASES.items() if n == word.name)]
        yield f"gym {word.name:<22} {ours:<30} {word.what}{_bracketed(also)}"


def _bracketed(words: list[str]) -> str:
    return f" ({', '.join(words)})" if words else ""


def _resolve(call: Call, resolved: Resolved) -> int:
    """The tree as the reference has it, secrets masked; with errors and remarks as comments, it is valid YAML still."""
    shown = without_secrets(resolved.merged.values)
    if _wants_json(call):
        print(jsontext.dumps(shown).decode())  # noqa: T201 - the answer
        return 0
    print(yaml.safe_dump(shown, sort_keys=False, allow_unicode=True), end="")  # noqa: T201
    for remark in resolved.translation.remarks:
        print(f"# {remark.level.value}: {remark}".replace("\n", " "))  # noqa: T201
    return 0


def _validate(call: Call, resolved: Resolved, say: Say) -> int:
    """Everything that can be checked in seconds (platform.md E5, Better); exit code 3 when something is wrong."""
    errors = [str(r) for r in resolved.translation.errors]
    if not errors:
        errors = [*_lacking(resolved), *_unreachable(resolved), *_bad_rows(resolved)]
    others = [f"{r.level.value}: {r}" for r in resolved.translation.remarks if r not in resolved.translation.errors]
    if _wants_json(call):
        print(jsontext.dumps({"valid": not errors, "errors": errors, "remarks": others}).decode())  # noqa: T201
    else:
        for line in (*others, *(f"error: {e}" for e in errors)):
            say(line)
        agents = ", ".join(f"{a} ({v})" for a, v in resolved.translation.agents.items()) or "none"
        say(f"agents: {agents}")
        say("valid" if not errors else f"not valid: {len(errors)} errors")
    return 3 if errors else 0


def _lacking(resolved: Resolved) -> Iterator[str]:
    registry, extras = Registry.load(_own(resolved)), Extras()
    for variant in dict.fromkeys(resolved.translation.agents.values()):
        entry = registry.entry_of(variant)
        lack = extras.lacking(entry.distribution, entry.manifest.extra)
        if lack:
            yield f"{variant}: {lack}"


def _unreachable(resolved: Resolved) -> Iterator[str]:
    if resolved.translation.command.get("model_endpoint_readiness_timeout_seconds") == 0:
        return
    settings = resolved.translation.settings
    for name, model in (("policy", settings.get("model", {})), *settings.get("models", {}).items()):
        try:
            wrong = reaching.check(model)
        except reaching.UnreachableError as e:
            wrong = str(e)
        if wrong:
            yield f"model {name}: {wrong}"


def _bad_rows(resolved: Resolved) -> Iterator[str]:
    """Rows of the input against the fields of their environments."""
    named = resolved.translation.command.get("input_jsonl_fpath")
    if not named:
        return
    path = resolved.roots.find(str(named))
    if path is None:
        yield f"input_jsonl_fpath: there is no file {named} in {resolved.roots}"
        return
    from rollstream.runfiles.expansion import Expansion, Plan
    from rollstream.runfiles.problems import PlanError, RowProblem

    try:
        plan = Plan(agent=resolved.translation.command.get("agent_name"))
        with path.open("rb") as file:
            rows = Expansion(plan, Registry.load(_own(resolved))).rows(file, str(path))
            problems = [str(r) for r in rows if isinstance(r, RowProblem)]
    except PlanError as e:
        problems = [str(e)]
    yield from problems[:SHOWN]
    if len(problems) > SHOWN:
        yield f"{path}: {len(problems) - SHOWN:,} more rows"


def _own(resolved: Resolved) -> Mapping[str, Any]:
    from environments.own import OwnVariant

    return {n: OwnVariant.model_validate(v) for n, v in resolved.translation.settings.get("variants", {}).items()}


def _environments(call: Call) -> list[str]:
    """The environments that the names of a call mean: one by its name, or by a word of it or its description."""
    registry = Registry.load({})
    listed = [(e.manifest, f"{e.manifest.name}  {e.manifest.description}") for e in registry.entries]
    wanted = [n.lower() for n in call.names]
    if call.word.does == "search":
        return [line for _, line in listed if all(w in line.lower() for w in wanted)]
    names = {n: m for m, _ in listed for n in (m.name, *m.variants)}
    unknown = next((n for n in call.names if n not in names), None)
    if unknown is not None:
        raise ConfigurationError(f"{call.typed}: there is no {unknown!r}{nearest(unknown, names)}")
    return [f"{v}  agent {b.agent.name} ({b.agent.type})" for n in call.names for v, b in names[n].variants.items()]


def _wants_json(call: Call) -> bool:
    return any(o.path == ("json",) and o.value for o in call.overrides)


def _print(found: list[str], *, as_json: bool) -> None:
    from rollstream.text import printable

    if as_json:
        print(jsontext.dumps(found).decode())  # noqa: T201
        return
    for line in found:
        print(printable(line))  # noqa: T201
