"""Variants that a person defines beside the shipped ones: an environment with other values, another agent or other steps.

Owns their form, and how they get into the registries of this process and of those it starts (a pool that verifies, workers):
by a variable of the environment. Invariant: what is declared replaces all that was declared before, so a process has the
variants of its settings and no others.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping

from pydantic import Field, TypeAdapter, ValidationError

from environments.discovery import Broken, Entry
from environments.manifest import Variant
from environments.words import nearest
from schemas.errors import DataError
from schemas.rows import describe

VARIABLE = "ROLLSTREAM_DECLARED_VARIANTS"

MAX_BYTES = 96 << 10
"""Linux takes no variable above 128 KiB."""


class OwnVariant(Variant):
    """A variant of `environment` (an environment's name); the agent's name is the one rows use in `agent_ref`."""

    environment: str = Field(min_length=1)


_FORM = TypeAdapter(dict[str, OwnVariant])


def declare(own: Mapping[str, OwnVariant]) -> None:
    """Make `own` the variants of this process and its children. Raises `DataError` when they are too large for that."""
    if not own:
        os.environ.pop(VARIABLE, None)
        return
    text = _FORM.dump_json(dict(own)).decode()
    if len(text.encode()) > MAX_BYTES:
        raise DataError(
            f"variants: {len(text):,} characters are more than the {MAX_BYTES:,} that fit; put long prompts into files"
        )
    os.environ[VARIABLE] = text


def declared() -> dict[str, OwnVariant]:
    """The variants of this process; raises `DataError` when the variable holds something else."""
    text = os.environ.get(VARIABLE)
    if not text:
        return {}
    try:
        return _FORM.validate_json(text)
    except ValidationError as e:
        raise DataError(f"{VARIABLE}: {describe(e, 'variants')}") from e


def with_own(
    entries: Iterable[Entry], broken: Iterable[Broken], own: Mapping[str, OwnVariant]
) -> tuple[list[Entry], list[Broken]]:
    """The entries with `own` among their variants; those of an environment that is not there are broken."""
    found, lost = {e.manifest.name: e for e in entries}, list(broken)
    for name, variant in own.items():
        entry = found.get(variant.environment)
        if entry is None:
            why = f"there is no environment {variant.environment!r}{nearest(variant.environment, found)}"
            lost.append(Broken(name, "", why))
            continue
        _drop({k: e for k, e in found.items() if k != variant.environment}, name, found)
        found[variant.environment] = _with_variant(entry, name, variant)
    return list(found.values()), lost


def _drop(others: Mapping[str, Entry], name: str, found: dict[str, Entry]) -> None:
    """Take a variant called `name` from the other environments: one of your own by that name stands in its place."""
    for key, entry in others.items():
        if name in entry.manifest.variants:
            left = {k: v for k, v in entry.manifest.variants.items() if k != name}
            if left:
                found[key] = _replaced(entry, left)
            else:
                del found[key]


def _with_variant(entry: Entry, name: str, variant: OwnVariant) -> Entry:
    plain = Variant(agent=variant.agent, config=variant.config)
    return _replaced(entry, {**entry.manifest.variants, name: plain})


def _replaced(entry: Entry, variants: dict[str, Variant]) -> Entry:
    manifest = entry.manifest.model_copy(update={"variants": variants})
    return Entry(manifest, entry.folder, entry.package, entry.distribution)
