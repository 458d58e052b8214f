"""HotPotQA with Wikipedia (aviary.md, "Tools and scoring: HotPotQA")."""

from __future__ import annotations

import re
import string
from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import Any

from environments.aviary import wikipedia
from environments.aviary.episode import Call, Episode, Outcome, answer, function_tool, misfit, user
from environments.context import Context

SEARCH = function_tool(
    "search", "Find the Wikipedia page of something and read its first sentences.", {"entity": "What the page is about."}
)
LOOKUP = function_tool(
    "lookup", "Find the next line of the current page that holds a word.", {"keyword": "The word, or several as they stand."}
)
SUBMIT = function_tool("submit_answer", "Give the final answer, which ends the task.", {"answer": "The answer, in few words."})
TOOLS = (SEARCH, LOOKUP, SUBMIT)
_BY_NAME = {t["name"]: t for t in TOOLS}

_PUNCTUATION = str.maketrans("", "", string.punctuation)
_ARTICLES = re.compile(r"\b(?:a|an|the)\b")


class Reading(Episode):
    """Which page is open, by what was searched, and how far the look-ups of a word have come.

    The page itself is not in the state: a page of a megabyte would travel with every turn. The pages' client keeps it.
    """

    entity: str | None = None
    keyword: str | None = None
    next_result: int = 0


async def step(calls: Sequence[Call], gold: str, state: Reading, context: Context, misfit_reward: float) -> Outcome:
    """The calls one after the other; rewards add up, and any of them may end the episode."""
    if not calls:
        return Outcome((user(f"Must call one of the provided tools ({', '.join(_BY_NAME)})."),))
    found = [await _call(c, gold, state, context, misfit_reward) for c in calls]
    items = tuple(i for o in found for i in o.observations)
    return Outcome(items, sum(o.reward for o in found), any(o.done for o in found))


def normalised(text: str) -> str:
    """Lower case, without ASCII punctuation and articles, blanks collapsed."""
    return " ".join(_ARTICLES.sub(" ", text.lower().translate(_PUNCTUATION)).split())


async def _call(call: Call, gold: str, state: Reading, context: Context, misfit_reward: float) -> Outcome:
    tool = _BY_NAME.get(call.name)
    if tool is None:
        return Outcome((answer(call, f"Invalid tool call: {call.name}"),))
    wrong = misfit(call, tool)
    if wrong:
        return Outcome((answer(call, wrong),), misfit_reward)
    (given,) = call.arguments.values()
    if call.name == "submit_answer":
        return _submitted(call, given, gold)
    return await _TOOLS[call.name](call, given, state, context)


def _submitted(call: Call, given: Any, gold: str) -> Outcome:
    if not given:
        return Outcome((answer(call, "submit_answer failed since it was provided an empty answer."),), done=True)
    right = normalised(gold) in normalised(str(given))
    return Outcome((answer(call, "Finished."),), float(right), done=True)


async def _search(call: Call, given: Any, state: Reading, context: Context) -> Outcome:
    if not given:
        return Outcome((answer(call, "Search failed. No entity provided."),), done=True)
    entity = str(given)
    found = await wikipedia.search(entity, context.pages)
    state.entity, state.keyword, state.next_result = (None if found.similar is not None else entity), None, 0
    if found.similar is not None:
        text = f"Search for {entity!r} returned no results. Similar: {list(found.similar)!r}."
        return Outcome((answer(call, text),))
    return Outcome((answer(call, wikipedia.opening(found.lines)),))


async def _lookup(call: Call, given: Any, state: Reading, context: Context) -> Outcome:
    if not given:
        return Outcome((answer(call, "Lookup failed. No keyword provided"),), done=True)
    if state.entity is None:
        return Outcome((answer(call, "Lookup failed. You have not specified a Wikipedia page yet."),))
    keyword = str(given)
    if keyword != state.keyword:
        state.keyword, state.next_result = keyword, 0
    page = await wikipedia.search(state.entity, context.pages)
    hits = [line for line in page.lines if keyword.lower() in line.lower()]
    at = state.next_result
    if at >= len(hits):
        return Outcome((answer(call, "No more results."),))
    state.next_result += 1
    return Outcome((answer(call, f"(Result {at + 1} / {len(hits)}) {hits[at]}"),))


_TOOLS: Mapping[str, Callable[[Call, Any, Reading, Context], Awaitable[Outcome]]] = {"search": _search, "lookup": _lookup}
