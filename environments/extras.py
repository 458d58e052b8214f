"""Extras of environments: what they ask for, what of it is not installed here, and what installs it.

An environment whose packages are not needed by others names them in an extra of its distribution (`extra` in `config.yaml`,
named as the environment). Invariant: asking imports none of them.
"""

from __future__ import annotations

from importlib import metadata
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from packaging.requirements import Requirement

OURS = "rollstream"


def lacking(distribution: str, extra: str | None) -> str | None:
    """What to tell whoever lacks packages of the extra; None when nothing is missing, or nothing known about it."""
    missing = [str(r.name) + str(r.specifier) for r in requirements(distribution, extra) or () if not _installed(r)]
    return f"it needs {', '.join(missing)}, not installed here: {install_command(distribution, extra)}" if missing else None


def install_command(distribution: str, extra: str | None) -> str:
    """The command that installs the extra."""
    in_checkout = f" (or, in a checkout, uv sync --extra {extra})" if distribution == OURS else ""
    return f"pip install '{distribution}[{extra}]'{in_checkout}"


def requirements(distribution: str, extra: str | None) -> list[Requirement] | None:
    """What the extra asks for on this machine; None when the distribution or its extra is not known here."""
    from packaging.requirements import Requirement
    from packaging.utils import canonicalize_name

    if extra is None:
        return []
    name = canonicalize_name(extra)
    try:
        found = metadata.metadata(distribution)
    except metadata.PackageNotFoundError:
        return None
    if name not in {canonicalize_name(e) for e in found.get_all("Provides-Extra") or ()}:
        return None
    all_of_them = [Requirement(text) for text in found.get_all("Requires-Dist") or ()]
    # A requirement that also holds without the extra belongs to the distribution itself, which is installed.
    return [r for r in all_of_them if r.marker and r.marker.evaluate({"extra": name}) and not r.marker.evaluate({"extra": ""})]


def _installed(requirement: Requirement) -> bool:
    try:
        return requirement.specifier.contains(metadata.version(requirement.name), prereleases=True)
    except metadata.PackageNotFoundError:
        return False
