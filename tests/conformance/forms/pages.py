"""`pages`: what the web answers, by the text that was searched for."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from urllib.parse import parse_qsl, urlsplit

from environments.context import Context
from schemas.errors import InfrastructureError
from tests.conformance.cases import Case
from tests.conformance.forms.form import Form


@dataclasses.dataclass(frozen=True)
class Answers:
    """Pages by search text, blanks as plus signs; any other is a failure."""

    pages: Mapping[str, str]

    async def get(self, url: str, *, timeout_s: float) -> str:
        query = dict(parse_qsl(urlsplit(url).query, keep_blank_values=True))
        page = self.pages.get(query["search"].replace(" ", "+"))
        if page is None:
            raise InfrastructureError(f"the case has no page for {url}")
        return page


class ScriptedPages(Form):
    """Puts the pages into the context."""

    keys = frozenset({"pages"})

    def context(self, case: Case, context: Context) -> Context:
        return dataclasses.replace(context, pages_client=Answers(case.data.get("pages") or {}))
