"""The environments as tables for documents, made from their manifests.

`python -m rollstream.catalogue` writes them into README.md (by domain) and docs/environments-table.md (one a line) of the
checkout it runs in. Invariant: a table is a function of the manifests alone, so a test can tell whether the documents are true.
"""

from __future__ import annotations

import re
import sys
from collections import defaultdict
from collections.abc import Iterable
from pathlib import Path

from environments.discovery import Entry, discover
from environments.extras import OURS
from environments.manifest import Manifest

README = "README.md"
PAGE = "docs/environments-table.md"
_TABLE = re.compile(r"(?<=<!-- table: environments -->\n).*?(?=<!-- end of table -->)", re.DOTALL)


def ours(entries: Iterable[Entry]) -> list[Entry]:
    """Those of this project, by name."""
    return sorted((e for e in entries if e.distribution == OURS), key=lambda e: e.manifest.name)


def by_domain(entries: Iterable[Entry], root: str = "environments") -> str:
    """A Markdown table with a line for each domain. `root` is where their folders lie, as a link from the page."""
    domains: dict[str, list[str]] = defaultdict(list)
    for entry in entries:
        domains[entry.manifest.domain].append(_link(entry, root))
    lines = [f"| {_cell(domain)} | {', '.join(links)} |" for domain, links in sorted(domains.items())]
    return "\n".join(["| domain | environments |", "|---|---|", *lines]) + "\n"


def one_by_one(entries: Iterable[Entry], root: str | None = None) -> str:
    """A Markdown table with a line for each environment; with `root` they are links."""
    lines = ["| environment | domain | what it is | variants | needs beside a model |", "|---|---|---|---|---|"]
    for entry in sorted(entries, key=lambda e: (e.manifest.domain, e.manifest.name)):
        m = entry.manifest
        name = f"`{_cell(m.name)}`" if root is None else _link(entry, root)
        cells = [
            name,
            _cell(m.domain),
            _cell(m.description),
            str(len(m.variants)),
            _cell(", ".join(needs(m, entry.distribution)) or "–"),
        ]
        lines.append(f"| {' | '.join(cells)} |")
    return "\n".join(lines) + "\n"


def needs(manifest: Manifest, distribution: str) -> list[str]:
    """What an environment needs beside a model: services, and its extra."""
    return [*manifest.needs, *([f"`{distribution}[{manifest.extra}]`"] if manifest.extra else [])]


def replaced(page: str, table: str) -> str:
    """`page` with `table` in the place of its table of environments; raises `ValueError` when it has none."""
    if not _TABLE.search(page):
        raise ValueError("the page has no <!-- table: environments -->")
    return _TABLE.sub(lambda _: table, page)


def tables(entries: Iterable[Entry]) -> dict[str, str]:
    """The table of each page of this project."""
    found = ours(entries)
    return {README: by_domain(found), PAGE: one_by_one(found, "../environments")}


def main(root: Path) -> None:
    """Write the tables of the checkout at `root`."""
    entries, broken = discover()
    for b in broken:
        sys.exit(f"{b.name}: {b.error}")
    for page, table in tables(entries).items():
        path = root / page
        path.write_text(replaced(path.read_text("utf-8"), table), "utf-8")


def _link(entry: Entry, root: str) -> str:
    return f"[`{_cell(entry.manifest.name)}`]({root}/{entry.folder.name}/README.md)"


def _cell(text: str) -> str:
    """Text on one line that does not end its cell."""
    return " ".join(text.split()).replace("|", "\\|")


if __name__ == "__main__":
    main(Path.cwd())
