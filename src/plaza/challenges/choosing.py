"""Which posts to show, in which order, and why: the rules, without any store.

Two sources are blended with something to discover. The documents' rule gives recent posts of the categories that one
spends most days on and of the challenges that one reacts in most; the model gives those of challenges that go with
one's own. They take turns, so that no source crowds out another, and a fifth of the places is for neither.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import cycle
from typing import Any, Final, TypeVar

import numpy as np
from numpy.typing import NDArray

from plaza.challenges.model import CATEGORIES, CATEGORY_NAMES
from plaza.challenges.neighbours import recency

T = TypeVar("T")

# The documents' rule: the three categories with most days.
TOP_CATEGORIES: Final = 3
# How many challenges of the model's there are to choose from.
MOST_ALIKE: Final = 10
# In one answer, as long as there are others.
MOST_OF_AUTHOR, MOST_OF_CHALLENGE = 2, 3
# Whose turn it is: two by the documents' rule, two by the model, and one in five to discover.
TURNS: Final = ("category", "alike", "challenge", "alike", "discover")

Chosen = list[tuple[Any, str]]  # rows of posts with the reason for each


@dataclass(frozen=True, slots=True)
class Own:
    """A challenge that goes on and that a person takes part in."""

    id: int
    title: str
    did: str  # "reacted in" or "joined"


@dataclass(frozen=True, slots=True)
class Taste:
    """What is known of a reader."""

    days: Sequence[int]  # by category
    reactions: Mapping[int, int]  # by challenge, the most first
    shown: Mapping[int, tuple[int, int]]  # by post: on how many days, and when last
    pool: frozenset[int]  # posts that may be shown
    hidden: frozenset[str] = frozenset()  # whose posts may not
    alike: Mapping[int, Own] = field(default_factory=dict)  # what the model finds, the best first; and due to what

    @property
    def categories(self) -> list[int]:
        """The categories with most days, the first one first."""
        numbers = sorted(range(1, CATEGORIES + 1), key=lambda n: -self.days[n - 1])
        return [n for n in numbers[:TOP_CATEGORIES] if self.days[n - 1]]


def alike(own: Sequence[Own], neighbours: Sequence[str | None]) -> dict[int, Own]:
    """The challenges that go best with one's own (given the newest first), and which of these speaks for each most."""
    found = [(row, place) for place, text in enumerate(neighbours) if (row := _numbers(text)) is not None]
    if not found:
        return {}
    ids = np.concatenate([row[::2] for row, _ in found]).astype(np.int64)
    fading = recency(len(own))
    weights = np.concatenate([row[1::2] * fading[place] for row, place in found])
    places = np.repeat([place for _, place in found], [len(row) // 2 for row, _ in found])
    names, code = np.unique(ids, return_inverse=True)
    scores = np.bincount(code, weights)
    # Of several that speak for one, the strongest is written last, and stays.
    due = np.empty(len(names), dtype=np.int64)
    rising = np.argsort(weights, kind="stable")
    due[code[rising]] = places[rising]
    new = ~np.isin(names, [one.id for one in own]) & (scores > 0)
    best = np.flatnonzero(new)[np.argsort(-scores[new], kind="stable")][:MOST_ALIKE]
    return {int(names[n]): own[due[n]] for n in best}


def _numbers(text: str | None) -> NDArray[np.float64] | None:
    """Ids and weights in turn; nothing if there is none, or somebody else wrote something that is not that."""
    try:
        row = np.array((text or "").split(), dtype=np.float64)
    except ValueError:
        return None
    return row if len(row) and len(row) % 2 == 0 and np.isfinite(row).all() else None


def choose(rows: Sequence[Any], taste: Taste, limit: int) -> Chosen:
    """The sources in turn, each its best first; few of one author or challenge as long as there are others."""
    waiting = [*_in_turn(_sources(rows, taste))]
    chosen: Chosen = []
    taken: set[int] = set()
    for strict in (True, False):
        authors = Counter(row.username for row, _ in chosen)
        challenges = Counter(row.challenge_id for row, _ in chosen)
        for row, reason in waiting:
            crowded = authors[row.username] >= MOST_OF_AUTHOR or challenges[row.challenge_id] >= MOST_OF_CHALLENGE
            if len(chosen) == limit or row.id in taken or (strict and crowded):
                continue
            chosen.append((row, reason))
            taken.add(row.id)
            authors[row.username] += 1
            challenges[row.challenge_id] += 1
    return chosen


def _sources(rows: Sequence[Any], taste: Taste) -> dict[str, Chosen]:
    def newest(row: Any) -> tuple[int, int, int]:
        return taste.shown.get(row.id, (0, 0))[0], -row.day, -row.id

    recent = sorted(rows, key=newest)
    liked = sorted(rows, key=lambda row: (-row.reactions, *newest(row)))

    def of(field: str, values: Iterable[int]) -> Iterator[Any]:
        """One of each of these, the newest first."""
        queues: dict[int, list[Any]] = {value: [] for value in values}
        for row in recent:
            queues.get(getattr(row, field), []).append(row)
        return one_of_each(list(queues.values()))

    spent = {category: _days(taste.days[category - 1], category) for category in taste.categories}
    return {
        "category": [(row, spent[row.category]) for row in of("category", spent)],
        "challenge": [
            (row, f"You reacted {_times(taste.reactions[row.challenge_id])} in {row.title}")
            for row in of("challenge_id", taste.reactions)
        ],
        "alike": [(row, _because(taste.alike[row.challenge_id])) for row in of("challenge_id", taste.alike)],
        "discover": [(row, _popular(row)) for row in one_of_each([liked, recent])],
    }


def one_of_each(queues: Sequence[Sequence[T]]) -> Iterator[T]:
    """The first of each queue, then the second of each, and so on."""
    for place in range(max(map(len, queues), default=0)):
        for queue in queues:
            if place < len(queue):
                yield queue[place]


def _in_turn(sources: dict[str, Chosen]) -> Iterator[tuple[Any, str]]:
    queues = {name: iter(found) for name, found in sources.items()}
    done: set[int] = set()
    for name in cycle(TURNS):
        if not queues:
            return
        while name in queues:
            following = next(queues[name], None)
            if following is None:
                del queues[name]
            elif following[0].id not in done:
                done.add(following[0].id)
                yield following
                break


def _days(days: int, category: int) -> str:
    return f"{days} {'day' if days == 1 else 'days'} in {CATEGORY_NAMES[category - 1]}"


def _times(count: int) -> str:
    return "once" if count == 1 else f"{count} times"


def _because(own: Own) -> str:
    return f"Because you {own.did} {own.title}"


def _popular(row: Any) -> str:
    if row.reactions > 1:
        return f"Popular: {row.reactions} reactions"
    return f"New in {CATEGORY_NAMES[row.category - 1]}"
