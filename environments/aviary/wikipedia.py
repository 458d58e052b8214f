"""Pages of Wikipedia as the tools `search` and `lookup` read them (aviary.md, "HotPotQA").

Invariant: the policy's words reach the address as one quoted parameter of one host.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache
from urllib.parse import quote

from environments.context import Pages
from environments.extras import OURS, install_command
from schemas.errors import InfrastructureError

HOST = "https://en.wikipedia.org"
TIMEOUT_S = 15.0

MAX_CHARS = 300
"""Of a search text that are sent: titles have at most 255 bytes."""

MAX_DISAMBIGUATIONS = 3
"""Searches made again because a page only lists meanings; the reference would go on for ever."""

_SENTENCES = 5
_SIMILAR = 5


@dataclass(frozen=True, slots=True)
class Found:
    """What a search led to: the lines of a page, or titles of others when there is none."""

    lines: tuple[str, ...] = ()
    similar: tuple[str, ...] | None = None


async def search(entity: str, pages: Pages) -> Found:
    """The page for `entity`; raises `InfrastructureError` when Wikipedia cannot be reached."""
    text = entity[:MAX_CHARS]
    parts: tuple[str, ...] = ()
    for _ in range(1 + MAX_DISAMBIGUATIONS):
        similar, parts = _read(await pages.get(address(text), timeout_s=TIMEOUT_S))
        if similar is not None:
            return Found(similar=similar)
        if not any("may refer to:" in p for p in parts):
            break
        text = f"[{text}]"
    return Found(_lines(parts))


def address(text: str) -> str:
    """The address of a search."""
    return f"{HOST}/w/index.php?search={quote(text.replace(' ', '+'), safe='+', errors='replace')}"


def opening(lines: Sequence[str]) -> str:
    """The first sentences of a page, each closed by a dot (one that ends its line has two then)."""
    pieces = (piece.strip() for line in lines for piece in line.split(". "))
    found: list[str] = []
    for piece in pieces:
        if piece:
            found.append(f"{piece}.")
        if len(found) == _SENTENCES:
            break
    return " ".join(found)


@lru_cache(maxsize=64)  # every look-up reads its page again, and half a megabyte takes the parser half a second
def _read(html: str) -> tuple[tuple[str, ...] | None, tuple[str, ...]]:
    """Titles of similar pages when the answer is a list of results, and the texts of paragraphs and lists."""
    try:
        from bs4 import BeautifulSoup
    except ImportError as e:
        raise InfrastructureError(f"pages need beautifulsoup4: {install_command(OURS, 'aviary')}", retryable=False) from e
    soup = BeautifulSoup(html, "html.parser")
    results = soup.find_all("div", {"class": "mw-search-result-heading"}, limit=_SIMILAR)
    if results:
        return tuple(_unescaped(r.get_text().strip()) for r in results), ()
    return None, tuple(e.get_text().strip() for name in ("p", "ul") for e in soup.find_all(name))


def _lines(parts: Sequence[str]) -> tuple[str, ...]:
    kept = (_unescaped(p) for p in parts if len(p.split(" ")) > 2)  # noqa: PLR2004 - the page's rule: more than two words
    return tuple(line.strip() for part in kept for line in part.split("\n") if line.strip())


def _unescaped(text: str) -> str:
    """`text` with its backslash escapes read, where that gives Latin-1 text; as it is otherwise."""
    if "\\" not in text:
        return text
    try:
        return text.encode("latin-1").decode("unicode-escape").encode("latin-1").decode("latin-1")
    except UnicodeError:
        return text
