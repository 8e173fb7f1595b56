"""Selects the posts to recommend, their order and their reasons. Pure functions, without I/O.

Posts come from five sources. By the model: recent posts of challenges similar to the viewer's own. By the document:
recent posts of the challenges in which the viewer reacted most, and of the categories in which they tracked most days.
To discover: popular posts, and new posts of every category. What a viewer will most likely react to comes first; then
all sources have a turn, so that none is missing. `plaza challenges evaluate` measures this order.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Container, Iterable, Iterator, Mapping, Sequence
from itertools import chain, cycle, islice
from typing import Any, Final, NamedTuple, TypeVar

from msgspec import Struct, field

from plaza.challenges.model import CATEGORIES, CATEGORY_NAMES

T = TypeVar("T")

# The document's rule: the three categories with most days.
TOP_CATEGORIES: Final = 3
# Challenges that the model may suggest. Some have no recent post.
MAX_SIMILAR: Final = 20
# In one response, as long as there are other posts.
MAX_PER_AUTHOR, MAX_PER_CHALLENGE = 2, 3
# For each of the first places: the sources to try, best first. New users have popular posts only.
LEADING_PLACES: Final = 10
LEADING_TURNS: Final = (
    ("similar", "challenge", "category", "popular"),
    ("similar", "challenge", "popular", "category"),
    ("challenge", "similar", "category", "popular"),
)
# After them, each source has its turn.
TURNS: Final = (("new",), ("category",), ("similar",), ("challenge",), ("popular",))


class Candidate(NamedTuple):
    """The immutable columns of a post and its challenge, sorted by age; `username` may be outdated."""

    day: int
    id: int
    challenge_id: int
    username: str
    is_break: bool
    category: int
    is_public: bool
    ends_day: int


class ChosenPost(NamedTuple):
    """A selected post and its source."""

    post: Candidate
    source: str


class OwnChallenge(NamedTuple):
    """An ongoing challenge in which the viewer takes part."""

    id: int
    title: str
    action: str  # "reacted in" or "joined"


class ViewerProfile(Struct, frozen=True):
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

    @property
    def least_tracked(self) -> list[int]:
        """All categories, those with fewest days first."""
        return sorted(range(1, CATEGORIES + 1), key=lambda n: self.days[n - 1])


class CandidateSelector:
    """Selects posts from the sources, each with its best posts first."""

    def __init__(
        self,
        posts: Iterable[Candidate],
        profile: ViewerProfile,
        can_be_shown: Callable[[Candidate], bool] = lambda post: True,
    ) -> None:
        self._profile = profile
        self._can_be_shown = can_be_shown
        shown, popular = profile.shown, profile.popular
        recent = sorted(posts, reverse=True)
        if seen := [post for post in recent if post.id in shown]:
            seen.sort(key=lambda post: shown[post.id][0])
            recent = [*(post for post in recent if post.id not in shown), *seen]
        categories: dict[int, list[Candidate]] = {category: [] for category in profile.least_tracked}
        challenges: dict[int, list[Candidate]] = {id: [] for id in (*profile.similar, *profile.reactions)}
        for post in recent:
            categories[post.category].append(post)
            if post.challenge_id in challenges:
                challenges[post.challenge_id].append(post)
        self._queues = {
            "similar": [challenges[id] for id in profile.similar],
            "challenge": [challenges[id] for id in profile.reactions],
            "category": [categories[category] for category in profile.categories],
            "popular": [sorted((post for post in recent if post.id in popular), key=lambda post: -popular[post.id])],
            "new": list(categories.values()),
        }

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

        def is_next(post: Candidate) -> bool:
            if post.id in done:
                return False
            done.add(post.id)
            return post.id not in excluded and self._can_be_shown(post)

        for place in chain(islice(cycle(LEADING_TURNS), LEADING_PLACES), cycle(TURNS)):
            for name in place:
                post = next(filter(is_next, sources.get(name, ())), None)
                if post is not None:
                    yield ChosenPost(post, name)
                    break
                sources.pop(name, None)
            if not sources:
                return

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
