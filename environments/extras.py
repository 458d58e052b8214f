"""Extras of environments: what they ask for, what of it is not installed here, and what installs it.

An environment whose packages are not needed by others names them in an extra of its distribution (`extra` in `config.yaml`,
named as the environment). Invariant: asking imports none of them.
"""

from __future__ import annotations

import shutil
from importlib import metadata
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from packaging.requirements import Requirement

OURS = "rollstream"

CHECKOUT = Path(__file__).parents[1]
"""Where this code lies; only a checkout has `uv.lock` there, an installed package does not."""

_OWN_UV = (".uv-bootstrap/bin/uv", ".uv-bootstrap/pip/bin/uv")
"""Where `scripts/bootstrap.sh` puts uv."""


class Extras:
    """What is installed, looked up once for each distribution: reading its metadata takes milliseconds."""

    def __init__(self) -> None:
        self._declared: dict[str, metadata.PackageMetadata | None] = {}
        self._versions: dict[str, str | None] = {}

    def lacking(self, distribution: str, extra: str | None) -> str | None:
        """What to tell whoever lacks packages of the extra; None when nothing is missing, or nothing known about it."""
        wanted = self.requirements(distribution, extra) or ()
        missing = [f"{r.name}{r.specifier}" for r in wanted if not self._installed(r)]
        return f"it needs {', '.join(missing)}, not installed here: {install_command(distribution, extra)}" if missing else None

    def requirements(self, distribution: str, extra: str | None) -> list[Requirement] | None:
        """What the extra asks for on this machine; None when the distribution or its extra is not known here."""
        if extra is None:
            return []
        from packaging.requirements import Requirement
        from packaging.utils import canonicalize_name

        name, found = canonicalize_name(extra), self._metadata(distribution)
        if found is None or name not in {canonicalize_name(e) for e in found.get_all("Provides-Extra") or ()}:
            return None
        conditional = (text for text in found.get_all("Requires-Dist") or () if "extra" in text.partition(";")[2])
        wanted = [Requirement(text) for text in conditional]
        return [r for r in wanted if r.marker and r.marker.evaluate({"extra": name}) and not r.marker.evaluate({"extra": ""})]

    def _installed(self, requirement: Requirement) -> bool:
        name = requirement.name
        if name not in self._versions:
            try:
                self._versions[name] = metadata.version(name)
            except metadata.PackageNotFoundError:
                self._versions[name] = None
        version = self._versions[name]
        return version is not None and requirement.specifier.contains(version, prereleases=True)

    def _metadata(self, distribution: str) -> metadata.PackageMetadata | None:
        if distribution not in self._declared:
            try:
                self._declared[distribution] = metadata.metadata(distribution)
            except metadata.PackageNotFoundError:
                self._declared[distribution] = None
        return self._declared[distribution]


def install_command(distribution: str, extra: str | None) -> str:
    """The command that installs the extra beside what is installed: uv's in a checkout of this project, else pip's.

    `--inexact`, because an exact sync would remove the extras and tools that it does not name.
    """
    if distribution == OURS and (CHECKOUT / "uv.lock").is_file():
        return f"{_uv()} sync --inexact --extra {extra}"
    return f"pip install '{distribution}[{extra}]'"


def _uv() -> str:
    """uv, or the one that `./quickstart` has put into the checkout of a machine without it."""
    if shutil.which("uv") is None:
        return next((uv for uv in _OWN_UV if (CHECKOUT / uv).is_file()), "uv")
    return "uv"
