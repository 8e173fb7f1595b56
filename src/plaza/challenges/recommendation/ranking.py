"""Selects the posts to recommend, their order and their reasons. Pure functions, without I/O.

Posts come from four sources in turn, so that none dominates. By the document: recent posts of the categories in which
the viewer tracked most days, and of the challenges in which they reacted most. By the model: recent posts of challenges
similar to the viewer's own. One place in five is for popular and new posts from anywhere.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Container, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import cycle
from typing import Any, Final, NamedTuple, TypeVar

from plaza.challenges.model import CATEGORIES, CATEGORY_NAMES

T = TypeVar("T")

# The document's rule: the three categories with most days.
TOP_CATEGORIES: Final = 3
# Challenges that the model may suggest.
MAX_SIMILAR: Final = 10
# In one response, as long as there are other posts.
MAX_PER_AUTHOR, MAX_PER_CHALLENGE = 2, 3
# The order of sources: of five places, two by the document's rule, two by the model, one to discover.
SOURCE_TURNS: Final = ("category", "similar", "challenge", "similar", "discover")


class Candidate(NamedTuple):
    """The immutable columns of a post and its challenge; `username` may be outdated."""

    id: int
    challenge_id: int
    username: str
    day: int
    is_break: bool
    category: int
    is_public: bool
    ends_day: int


class ChosenPost(NamedTuple):
    """A selected post and its source."""

    post: Candidate
    source: str


@dataclass(frozen=True, slots=True)
class OwnChallenge:
    """An ongoing challenge in which the viewer takes part."""

    id: int
    title: str
    action: str  # "reacted in" or "joined"


@dataclass(frozen=True, slots=True)
class ViewerProfile:
    """What is known about a viewer."""

    days: Sequence[int]  # by category
    reactions: Mapping[int, int]  # by challenge, most reactions first
    shown: Mapping[int, tuple[int, int]]  # by post: number of days shown, last day
    pool: frozenset[int]  # ids of candidates
    popular: Mapping[int, int] = field(default_factory=dict)  # posts with most reactions, and their number
    hidden: frozenset[str] = frozenset()  # authors hidden from the viewer
    similar: Mapping[int, OwnChallenge] = field(
        default_factory=dict
    )  # best first; the value is the viewer's challenge that contributes most

    @property
    def categories(self) -> list[int]:
        """The categories with most days, highest first."""
        numbers = sorted(range(1, CATEGORIES + 1), key=lambda n: -self.days[n - 1])
        return [n for n in numbers[:TOP_CATEGORIES] if self.days[n - 1]]


class CandidateSelector:
    """Selects posts from the sources, each with its best posts first."""

    def __init__(self, posts: Iterable[Candidate], profile: ViewerProfile) -> None:
        self._profile = profile
        shown = profile.shown
        self._recent = sorted(posts, key=lambda post: (shown.get(post.id, (0, 0))[0], -post.day, -post.id))
        popular = sorted(
            (post for post in self._recent if post.id in profile.popular), key=lambda post: -profile.popular[post.id]
        )
        self._queues = {
            "category": self._group_by("category", profile.categories),
            "challenge": self._group_by("challenge_id", profile.reactions),
            "similar": self._group_by("challenge_id", profile.similar),
            "discover": [popular, self._recent],
        }

    def _group_by(self, field: str, values: Iterable[int]) -> list[list[Candidate]]:
        """A queue of posts for each value of a field, newest first."""
        queues: dict[int, list[Candidate]] = {value: [] for value in values}
        for post in self._recent if queues else ():
            if (queue := queues.get(getattr(post, field))) is not None:
                queue.append(post)
        return list(queues.values())

    def choose(self, limit: int, excluded: Container[int] = ()) -> list[ChosenPost]:
        """Select posts from the sources in turn, with few of one author or challenge as long as there are others.

        A larger `limit` only appends posts.
        """
        authors: Counter[str] = Counter()
        challenges: Counter[int] = Counter()
        chosen: list[ChosenPost] = []
        postponed: list[ChosenPost] = []
        for candidate in self._in_turn(excluded):
            author, challenge = candidate.post.username, candidate.post.challenge_id
            if authors[author] >= MAX_PER_AUTHOR or challenges[challenge] >= MAX_PER_CHALLENGE:
                postponed.append(candidate)
                continue
            chosen.append(candidate)
            if len(chosen) == limit:
                return chosen
            authors[author] += 1
            challenges[challenge] += 1
        return [*chosen, *postponed[: limit - len(chosen)]]

    def _in_turn(self, excluded: Container[int]) -> Iterator[ChosenPost]:
        sources = {name: round_robin(queues) for name, queues in self._queues.items()}
        done: set[int] = set()
        for name in cycle(SOURCE_TURNS):
            if not sources:
                return
            for post in sources.get(name, ()):
                if post.id not in done and post.id not in excluded:
                    done.add(post.id)
                    yield ChosenPost(post, name)
                    break
            else:
                sources.pop(name, None)

    def reason(self, source: str, row: Any) -> str:
        """The reason for a recommended post, from its current row."""
        profile = self._profile
        if source == "category":
            return _days_reason(profile.days[row.category - 1], row.category)
        if source == "challenge":
            return f"You reacted {_times(profile.reactions[row.challenge_id])} in {row.title}"
        if source == "similar":
            return _similar_reason(profile.similar[row.challenge_id])
        return _discover_reason(row)


def round_robin(queues: Sequence[Sequence[T]]) -> Iterator[T]:
    """Yield the first item of each queue, then the second of each, and so on."""
    for index in range(max(map(len, queues), default=0)):
        for queue in queues:
            if index < len(queue):
                yield queue[index]


def _days_reason(days: int, category: int) -> str:
    return f"{days} {'day' if days == 1 else 'days'} in {CATEGORY_NAMES[category - 1]}"


def _times(count: int) -> str:
    return "once" if count == 1 else f"{count} times"


def _similar_reason(own: OwnChallenge) -> str:
    return f"Because you {own.action} {own.title}"


def _discover_reason(row: Any) -> str:
    if row.reactions > 1:
        return f"Popular: {row.reactions} reactions"
    return f"New in {CATEGORY_NAMES[row.category - 1]}"
