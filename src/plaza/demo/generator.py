"""What happened in a community, batch by batch: the same seed, the same posts by the same people at the same times.

Each batch has dice of its own, so a run can begin at any of them, and no more than one is ever in memory. Whom people
follow is preferential attachment in its closed form: when the n-th person comes, the chance that they follow number j
falls with the square root of j, as it does when everybody prefers whom many others follow.
"""

from __future__ import annotations

import math
import uuid
from dataclasses import dataclass, field
from random import Random
from typing import Final

from plaza.demo.phrases import Topic
from plaza.demo.users import DAY_MS, DemoUser, GeneratedUsers, joined_ms
from plaza.demo.users import DemoUsers as DemoUsers
from plaza.social.sync import CommentRecord, FollowRecord, MarkRecord, PostRecord, UserRecord

HOUR_MS: Final = 3_600_000

# Posts lie this far back at most: beyond the fourteen days for which they are ranked.
POST_DAYS: Final = 21

# The first so many know each other: nobody came before them.
FOUNDERS: Final = 40

# How likely a post is at each hour of the day, UTC: people sleep, have lunch, and talk in the evening.
HOURS: Final = (2, 1, 1, 1, 1, 3, 7, 10, 9, 7, 6, 7, 10, 8, 6, 6, 7, 9, 11, 13, 14, 12, 8, 4)


@dataclass(frozen=True, slots=True)
class ActivityLevel:
    """How much people do with a post, on average."""

    likes: float
    comments: float
    bookmarks: float
    follows: int  # per person
    few: float  # 1: everybody posts as much; the higher, the more is posted by the first


# In a small town everybody reads everything; in a city most posts pass most people by.
SMALL_COMMUNITY: Final = ActivityLevel(likes=7.0, comments=1.3, bookmarks=0.7, follows=11, few=1.25)
LARGE_COMMUNITY: Final = ActivityLevel(likes=2.0, comments=0.4, bookmarks=0.25, follows=12, few=1.6)


@dataclass(slots=True)
class GeneratedPost:
    """A post, and what came of it."""

    post: PostRecord
    likes: list[MarkRecord] = field(default_factory=list)
    bookmarks: list[MarkRecord] = field(default_factory=list)
    comments: list[CommentRecord] = field(default_factory=list)

    def __len__(self) -> int:
        return 1 + len(self.likes) + len(self.bookmarks) + len(self.comments)


class CommunityPlan:
    """A community. `anchor_ms` is its now: everything in it lies before."""

    def __init__(self, name: str, people: DemoUsers, posts: int, anchor_ms: int, lively: ActivityLevel) -> None:
        self.name = name
        self.numbered = isinstance(people, GeneratedUsers)  # one of many; what must be unique needs a number
        self.people = people
        self.posts = posts
        self.anchor_ms = anchor_ms
        self.lively = lively

    def users_of(self, first: int, count: int) -> list[UserRecord]:
        """The profiles of some of the people."""
        return [self._user(self.people.person(n)) for n in range(first, min(first + count, self.people.size))]

    def _user(self, person: DemoUser) -> UserRecord:
        return UserRecord(
            username=person.username,
            role=person.role,
            created_at=joined_ms(person, self.anchor_ms),
            display_name=person.display_name,
            bio=person.bio,
            avatar=person.avatar,
        )

    def follows_of(self, first: int, count: int) -> list[FollowRecord]:
        """Whom some of the people follow."""
        found = []
        for n in range(first, min(first + count, self.people.size)):
            dice = Random(f"{self.name}/follows/{n}")
            name = self.people.name(n)
            for target in self._followed(n, dice):
                at = self._before_now(dice.uniform(0, 24) * DAY_MS)
                found.append(FollowRecord(name, self.people.name(target), at))
        return found

    def _followed(self, n: int, dice: Random) -> list[int]:
        """Those who were there before, by preference; the first few, whom nobody preceded, follow each other."""
        size = self.people.size
        among = max(n, min(size, FOUNDERS))
        wanted = min(among - 1, max(1, round(dice.gauss(self.lively.follows, self.lively.follows / 3))))
        about = self.people.topic(n)
        found: dict[int, None] = {}
        for _ in range(wanted * 4):
            target = int(among * dice.random() ** 2)
            # Of two, the one who cares about the same things.
            if self.people.topic(target) is not about and dice.random() < 0.5:
                continue
            if target != n:
                found[target] = None
            if len(found) == wanted:
                break
        return list(found)

    def posts_of(self, batch: int, count: int) -> list[GeneratedPost]:
        """A batch of posts with their likes, bookmarks and comments."""
        dice = Random(f"{self.name}/{self.people.size}/posts/{batch}")
        made, said = list[GeneratedPost](), set[tuple[int, str]]()
        for _ in range(min(count, self.posts - batch * count)):
            author = int(self.people.size * dice.random() ** self.lively.few)
            about = self.people.topic(author)
            text = _new(author, about, dice, said)
            created = self._moment(dice)
            story = GeneratedPost(PostRecord(_id(dice), self.people.name(author), text, created_at=created))
            self._engage(story, author, created, about, dice)
            made.append(story)
        return made

    def _engage(self, story: GeneratedPost, author: int, created: int, about: Topic, dice: Random) -> None:
        """What people do with a post: some posts get much of it, most get little."""
        liked = dice.lognormvariate(0, 0.9) / math.exp(0.405)  # 1 on average
        lively, id = self.lively, story.post.id
        for n in self._some(lively.likes * liked, author, dice):
            story.likes.append(MarkRecord(self.people.name(n), id, self._after(created, dice)))
        for n in self._some(lively.bookmarks * liked, author, dice):
            story.bookmarks.append(MarkRecord(self.people.name(n), id, self._after(created, dice)))
        said = set[str]()
        for n in self._some(lively.comments * liked, author, dice):
            text = about.comment(dice)
            if text not in said:
                said.add(text)
                at = self._after(created, dice)
                story.comments.append(CommentRecord(_id(dice), id, self.people.name(n), text, at))

    def _some(self, average: float, but: int, dice: Random) -> list[int]:
        """So many different people on average, those of low rank more often; never the author."""
        size = self.people.size
        count = min(int(average + dice.random()), size - 1)
        found = {int(size * dice.random() ** 1.2) for _ in range(count)}
        found.discard(but)
        return sorted(found)

    def _moment(self, dice: Random) -> int:
        """When something was posted: more of it lately, and by day."""
        age = int(POST_DAYS * dice.random() ** 1.4)
        (hour,) = dice.choices(range(24), HOURS)
        midnight = self.anchor_ms - self.anchor_ms % DAY_MS
        at = midnight - age * DAY_MS + hour * HOUR_MS + dice.randrange(HOUR_MS)
        return at if at < self.anchor_ms - 60_000 else at - DAY_MS

    def _after(self, created: int, dice: Random) -> int:
        """Some time after a post: usually within hours, and never in the future."""
        at = created + round(dice.expovariate(1 / (4 * HOUR_MS)))
        return at if at < self.anchor_ms else created + round(dice.random() * (self.anchor_ms - created))

    def _before_now(self, ms: float) -> int:
        return self.anchor_ms - round(ms)


def _new(author: int, about: Topic, dice: Random, said: set[tuple[int, str]]) -> str:
    """What somebody posts: in one batch no sentence of theirs twice nor another's words, if it can be helped."""
    for _ in range(8):
        sentence, text = about.post(dice)
        if (author, sentence) not in said and (-1, text) not in said:
            break
    said |= {(author, sentence), (-1, text)}
    return text


def _id(dice: Random) -> str:
    return str(uuid.UUID(int=dice.getrandbits(128), version=4))
