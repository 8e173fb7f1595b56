"""Which posts to show, in which order, and why: the rules, without any store.

Two sources are blended with something to discover. The documents' rule gives recent posts of the categories that one
spends most days on and of the challenges that one reacts in most; the model gives those of challenges that go with
one's own. They take turns, so that no source crowds out another, and a fifth of the places is for neither.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Container, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import cycle
from typing import Any, Final, NamedTuple, TypeVar

import numpy as np
from numpy.typing import NDArray

from plaza.challenges.model import CATEGORIES, CATEGORY_NAMES
from plaza.challenges.recommendation.neighbours import recency

T = TypeVar("T")

# The documents' rule: the three categories with most days.
TOP_CATEGORIES: Final = 3
# How many challenges of the model's there are to choose from.
MOST_ALIKE: Final = 10
# In one answer, as long as there are others.
MOST_OF_AUTHOR, MOST_OF_CHALLENGE = 2, 3
# Whose turn it is: two by the documents' rule, two by the model, and one in five to discover.
TURNS: Final = ("category", "alike", "challenge", "alike", "discover")


class Candidate(NamedTuple):
    """What never changes of a post and its challenge, but for a name that may be an older one."""

    id: int
    challenge_id: int
    username: str
    day: int
    is_break: bool
    category: int
    is_public: bool
    ends_day: int


class Chosen(NamedTuple):
    """A post, and the source that it comes from."""

    post: Candidate
    source: str


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
    popular: Mapping[int, int] = field(default_factory=dict)  # those of them with most reactions, and how many
    hidden: frozenset[str] = frozenset()  # whose posts may not be shown
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


class Menu:
    """What there is to choose from: each source with its best first."""

    def __init__(self, posts: Iterable[Candidate], taste: Taste) -> None:
        self._taste = taste
        shown = taste.shown
        self._recent = sorted(posts, key=lambda post: (shown.get(post.id, (0, 0))[0], -post.day, -post.id))
        liked = sorted(
            (post for post in self._recent if post.id in taste.popular), key=lambda post: -taste.popular[post.id]
        )
        self._queues = {
            "category": self._by("category", taste.categories),
            "challenge": self._by("challenge_id", taste.reactions),
            "alike": self._by("challenge_id", taste.alike),
            "discover": [liked, self._recent],
        }

    def _by(self, field: str, values: Iterable[int]) -> list[list[Candidate]]:
        """A queue for each of these, the newest first."""
        queues: dict[int, list[Candidate]] = {value: [] for value in values}
        for post in self._recent if queues else ():
            if (queue := queues.get(getattr(post, field))) is not None:
                queue.append(post)
        return list(queues.values())

    def choose(self, limit: int, but: Container[int] = ()) -> list[Chosen]:
        """The sources in turn, each its best first; few of one author or challenge as long as there are others.

        To ask for more changes nothing about the first ones.
        """
        authors: Counter[str] = Counter()
        challenges: Counter[int] = Counter()
        chosen: list[Chosen] = []
        crowded: list[Chosen] = []
        for one in self._in_turn(but):
            author, challenge = one.post.username, one.post.challenge_id
            if authors[author] >= MOST_OF_AUTHOR or challenges[challenge] >= MOST_OF_CHALLENGE:
                crowded.append(one)
                continue
            chosen.append(one)
            if len(chosen) == limit:
                return chosen
            authors[author] += 1
            challenges[challenge] += 1
        return [*chosen, *crowded[: limit - len(chosen)]]

    def _in_turn(self, but: Container[int]) -> Iterator[Chosen]:
        sources = {name: one_of_each(queues) for name, queues in self._queues.items()}
        done: set[int] = set()
        for name in cycle(TURNS):
            if not sources:
                return
            for post in sources.get(name, ()):
                if post.id not in done and post.id not in but:
                    done.add(post.id)
                    yield Chosen(post, name)
                    break
            else:
                sources.pop(name, None)

    def reason(self, source: str, row: Any) -> str:
        """Why a post is there, from its row as it is now."""
        taste = self._taste
        if source == "category":
            return _days(taste.days[row.category - 1], row.category)
        if source == "challenge":
            return f"You reacted {_times(taste.reactions[row.challenge_id])} in {row.title}"
        if source == "alike":
            return _because(taste.alike[row.challenge_id])
        return _popular(row)


def one_of_each(queues: Sequence[Sequence[T]]) -> Iterator[T]:
    """The first of each queue, then the second of each, and so on."""
    for place in range(max(map(len, queues), default=0)):
        for queue in queues:
            if place < len(queue):
                yield queue[place]


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
