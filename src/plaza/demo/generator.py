"""Generates users, follows, posts and reactions in batches. The same seed gives the same data.

Each batch has its own random generator, so a run can start at any batch and keeps only one in memory. Follows use
preferential attachment in its closed form: the chance that the n-th user follows user j falls with the square root of
j, as if users prefer to follow users with many followers.
"""

from __future__ import annotations

import math
import uuid
from dataclasses import dataclass, field
from random import Random
from typing import Final

from plaza.demo.phrases import Topic
from plaza.demo.users import DAY_MS, CommunityUsers, DemoUser, GeneratedUsers, joined_ms
from plaza.demo.users import DemoUsers as DemoUsers
from plaza.social.inbound_sync import CommentRecord, FollowRecord, MarkRecord, PostRecord, UserRecord

HOUR_MS: Final = 3_600_000

# The age of the oldest posts: more than the fourteen days in which posts are ranked.
POST_DAYS: Final = 21

# The first users follow each other, because there are no earlier users.
FOUNDERS: Final = 40

# The relative number of posts in each hour of the day, UTC.
POSTS_BY_HOUR: Final = (2, 1, 1, 1, 1, 3, 7, 10, 9, 7, 6, 7, 10, 8, 6, 6, 7, 9, 11, 13, 14, 12, 8, 4)


@dataclass(frozen=True, slots=True)
class ActivityLevel:
    """Average numbers per post, and follows per user."""

    likes: float
    comments: float
    bookmarks: float
    follows: int  # per user
    author_skew: float  # 1: all users post equally often; higher: the first users post more


# In a small community most users see most posts; in a large one few do.
SMALL_COMMUNITY: Final = ActivityLevel(likes=7.0, comments=1.3, bookmarks=0.7, follows=11, author_skew=1.25)
LARGE_COMMUNITY: Final = ActivityLevel(likes=2.0, comments=0.4, bookmarks=0.25, follows=12, author_skew=1.6)


@dataclass(slots=True)
class GeneratedPost:
    """A post with its likes, bookmarks and comments."""

    post: PostRecord
    likes: list[MarkRecord] = field(default_factory=list)
    bookmarks: list[MarkRecord] = field(default_factory=list)
    comments: list[CommentRecord] = field(default_factory=list)

    def __len__(self) -> int:
        return 1 + len(self.likes) + len(self.bookmarks) + len(self.comments)


class CommunityPlan:
    """Generates the data of a community. All times are before `anchor_ms`."""

    def __init__(self, name: str, users: DemoUsers, posts: int, anchor_ms: int, activity: ActivityLevel) -> None:
        self.name = name
        # There may be several generated communities, so their unique texts need a number.
        self.is_generated = isinstance(users, GeneratedUsers)
        self.users = users
        self.posts = posts
        self.anchor_ms = anchor_ms
        self.activity = activity

    def generate_users(self, first: int, count: int) -> list[UserRecord]:
        """Return the profiles of a range of users."""
        return [self._user(self.users.user(n)) for n in range(first, min(first + count, self.users.size))]

    def _user(self, user: DemoUser) -> UserRecord:
        return UserRecord(
            username=user.username,
            role=user.role,
            created_at=joined_ms(user, self.anchor_ms),
            display_name=user.display_name,
            bio=user.bio,
            avatar=user.avatar,
        )

    def generate_follows(self, first: int, count: int) -> list[FollowRecord]:
        """Return the follows of a range of users."""
        found = []
        for n in range(first, min(first + count, self.users.size)):
            rng = Random(f"{self.name}/follows/{n}")
            name = self.users.name(n)
            for target in self._choose_followed(n, rng):
                at = self._ago(rng.uniform(0, 24) * DAY_MS)
                found.append(FollowRecord(name, self.users.name(target), at))
        return found

    def _choose_followed(self, n: int, rng: Random) -> list[int]:
        """Choose earlier users to follow, popular ones more often. The first users follow each other."""
        size = self.users.size
        among = max(n, min(size, FOUNDERS))
        wanted = min(among - 1, max(1, round(rng.gauss(self.activity.follows, self.activity.follows / 3))))
        about = self.users.topic(n)
        found: dict[int, None] = {}
        for _ in range(wanted * 4):
            target = int(among * rng.random() ** 2)
            # Prefer users with the same topic.
            if self.users.topic(target) is not about and rng.random() < 0.5:
                continue
            if target != n:
                found[target] = None
            if len(found) == wanted:
                break
        return list(found)

    def generate_posts(self, batch: int, count: int) -> list[GeneratedPost]:
        """Return a batch of posts with their likes, bookmarks and comments.

        In the small community no comment is repeated, which only those who generate all of them know.
        """
        numbers = range(batch * count, min((batch + 1) * count, self.posts))
        if isinstance(self.users, CommunityUsers):
            return self._generate(range(self.posts), 0)[numbers.start : numbers.stop]
        return self._generate(numbers, batch)

    def _generate(self, numbers: range, batch: int) -> list[GeneratedPost]:
        rng = Random(f"{self.name}/{self.users.size}/posts/{batch}")
        result, used, said = list[GeneratedPost](), set[str](), set[str]()
        for n in numbers:
            author, text = self._choose_text(n, rng, used)
            created = self._post_time(rng)
            item = GeneratedPost(PostRecord(_id(rng), self.users.name(author), text, created_at=created))
            self._add_reactions(item, author, created, self.users.topic(author), rng, said)
            result.append(item)
        return result

    def _choose_text(self, n: int, rng: Random, used: set[str]) -> tuple[int, str]:
        """Return the author and the text of the n-th post. In the small community each sentence is said once, by one
        user. In a large one few texts are repeated in a batch.
        """
        if isinstance(self.users, CommunityUsers):
            about, sentence = self.users.sentences[n % len(self.users.sentences)]
            return self.users.author(about, sentence), about.post(sentence, rng)
        author = int(self.users.size * rng.random() ** self.activity.author_skew)
        about = self.users.topic(author)
        for _ in range(24):
            text = about.post(rng.choice(about.posts), rng)
            if text not in used:
                break
        used.add(text)
        return author, text

    def speaker(self, chosen: int, text: str) -> int:
        """Return who says a text: in the small community the user it belongs to, else the chosen one."""
        return self.users.speaker(text) if isinstance(self.users, CommunityUsers) else chosen

    def _add_reactions(
        self, item: GeneratedPost, author: int, created: int, about: Topic, rng: Random, said: set[str]
    ) -> None:
        """Add likes, bookmarks and comments. A few posts get many, most get few. No comment is `said` twice."""
        popularity = rng.lognormvariate(0, 0.9) / math.exp(0.405)  # 1 on average
        activity, id = self.activity, item.post.id
        for n in self._choose_users(activity.likes * popularity, author, rng):
            item.likes.append(MarkRecord(self.users.name(n), id, self._time_after(created, rng)))
        for n in self._choose_users(activity.bookmarks * popularity, author, rng):
            item.bookmarks.append(MarkRecord(self.users.name(n), id, self._time_after(created, rng)))
        for n in self._choose_users(activity.comments * popularity, author, rng):
            text = about.comment(rng)
            n = self.speaker(n, text)
            if text not in said and n != author:
                said.add(text)
                at = self._time_after(created, rng)
                item.comments.append(CommentRecord(_id(rng), id, self.users.name(n), text, at))

    def _choose_users(self, average: float, author: int, rng: Random) -> list[int]:
        """Choose distinct users, `average` of them, low numbers more often; never the author."""
        size = self.users.size
        count = min(int(average + rng.random()), size - 1)
        found = {int(size * rng.random() ** 1.2) for _ in range(count)}
        found.discard(author)
        return sorted(found)

    def _post_time(self, rng: Random) -> int:
        """Return a time for a post: recent days and daytime are more frequent."""
        age = int(POST_DAYS * rng.random() ** 1.4)
        (hour,) = rng.choices(range(24), POSTS_BY_HOUR)
        midnight = self.anchor_ms - self.anchor_ms % DAY_MS
        at = midnight - age * DAY_MS + hour * HOUR_MS + rng.randrange(HOUR_MS)
        return at if at < self.anchor_ms - 60_000 else at - DAY_MS

    def _time_after(self, created: int, rng: Random) -> int:
        """Return a time after a post: usually within hours, never in the future."""
        at = created + round(rng.expovariate(1 / (4 * HOUR_MS)))
        return at if at < self.anchor_ms else created + round(rng.random() * (self.anchor_ms - created))

    def _ago(self, ms: float) -> int:
        return self.anchor_ms - round(ms)


def _id(rng: Random) -> str:
    return str(uuid.UUID(int=rng.getrandbits(128), version=4))
