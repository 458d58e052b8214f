"""Pairing expected calls with actual ones.

Owns a maximum matching: similarity is fuzzy, so taking the first that fits is not enough. Invariant: the order of the search is
the reference's (few candidates first, then actual calls by place), because it decides which expected call stays alone.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence


def paired(candidates: Sequence[Sequence[int]]) -> dict[int, int]:
    """A maximum matching, from expected call to actual call; `candidates` are the actual calls that fit each expected one."""
    partner: dict[int, int] = {}  # from actual call to expected call
    for start in sorted(range(len(candidates)), key=lambda e: len(candidates[e])):
        _augment(start, candidates, partner)
    return {expected: actual for actual, expected in partner.items()}


def _augment(start: int, candidates: Sequence[Sequence[int]], partner: dict[int, int]) -> None:
    """Find `start` a partner, moving others to further candidates where needed; a search in depth without recursion."""
    seen: set[int] = set()
    path: list[tuple[int, Iterator[int]]] = [(start, iter(candidates[start]))]
    taken: list[int] = []  # the actual call that each step of the path wants
    while path:
        actual = next((a for a in path[-1][1] if a not in seen), None)
        if actual is None:
            path.pop()
            if taken:
                taken.pop()
            continue
        seen.add(actual)
        taken.append(actual)
        holder = partner.get(actual)
        if holder is None:
            partner.update((a, expected) for a, (expected, _) in zip(taken, path, strict=True))
            return
        path.append((holder, iter(candidates[holder])))
