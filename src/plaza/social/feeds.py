"""Lists of posts: explore, a user's posts, bookmarks, hashtags by time and by rank, search.

A page by time costs two round trips on one server (three on a cluster), whatever its size. If many posts are hidden
from the viewer, each refill costs two more. The home feed is in `home_feed.py`.

If no user is hidden from the viewer, an offset is a rank in explore and hashtags, because banned and deleted posts
leave these lists: it costs no more than a cursor. Otherwise Valkey counts the visible posts, in one round trip more. On
a cluster they are counted here, 250 in two round trips.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial

import msgspec

from plaza.core.auth import Actor
from plaza.core.clock import Clock
from plaza.core.errors import Forbidden, Invalid
from plaza.core.functions import Functions
from plaza.core.number_parsing import parse_int
from plaza.core.paging import (
    MAX_IDS_READ,
    EncodedItems,
    Page,
    PageResult,
    Position,
    Snapshots,
    fill_page,
    ids_in_sorted_set,
    page_by_position,
)
from plaza.social.hashtags import require_tag
from plaza.social.keys import (
    EXPLORE_FEED,
    HASHTAG_POSTS,
    HASHTAG_RANKED,
    MODELS_TOP_ENGAGEMENT,
    POST,
    POSTS_BANNED,
    USER,
    USER_BOOKMARKED,
    USER_POSTS,
)
from plaza.social.known_pages import KnownPages
from plaza.social.model import POST_FIELDS, RANKED_MS, FeedItem, Post, TopModel, TopPosts, User, post_from_values
from plaza.social.post_reader import ITEM_BYTES, PostReader
from plaza.social.profile_reader import ProfileReader
from plaza.social.read_view import ReadView
from plaza.social.users import Users

MAX_SEARCHED_TAGS = 10
# Read beyond what is shown, because some posts may be hidden from the viewer.
SPARE_POSTS = 20
# Pages of top models, which viewers have in common.
MAX_MODEL_PAGES = 64
MAX_MODEL_BYTES = 4 * 1024 * 1024


class Feeds:
    def __init__(self, functions: Functions, reader: PostReader, users: Users, clock: Clock) -> None:
        self.functions = functions
        self.valkey = functions.valkey
        self.reader = reader
        self._profiles = ProfileReader(reader)
        self.users = users
        self.clock = clock
        self.snapshots = Snapshots(functions.valkey, clock)
        self._model_pages: KnownPages[EncodedItems[TopModel]] = KnownPages(
            functions.valkey, MAX_MODEL_PAGES, MAX_MODEL_BYTES
        )

    async def explore(self, viewer: Actor | None, page: Page, *, users: bool = True) -> PageResult[FeedItem]:
        """List all posts, newest first. Two round trips on one server, three on a cluster."""
        return await self._by_time(ReadView(viewer, users), EXPLORE_FEED(), page, only_shown=True)

    async def user_posts(
        self, viewer: Actor | None, name: str, page: Page, *, users: bool = True
    ) -> PageResult[FeedItem]:
        """List a user's posts, newest first. Three round trips."""
        await self.users.get(viewer, name)
        return await self._by_time(ReadView(viewer, users, feed=False), USER_POSTS(name), page)

    async def bookmarked(self, actor: Actor, name: str, page: Page, *, users: bool = True) -> PageResult[FeedItem]:
        """List the caller's bookmarks, latest first. Two round trips on one server, three on a cluster."""
        if actor.name != name:
            raise Forbidden("You can only read your own bookmarks.")
        return await self._by_time(ReadView(actor, users, feed=False), USER_BOOKMARKED(name), page)

    async def banned(self, page: Page, author: str | None = None) -> PageResult[Post]:
        """List the banned posts for admins, the latest ban first; those of an author by their time. Two round trips."""
        key = USER_POSTS(author) if author else POSTS_BANNED()

        async def load(ids: Sequence[str]) -> list[Post | None]:
            rows = await self.valkey.batch([("HMGET", POST(id), *POST_FIELDS) for id in ids])
            posts = [
                post_from_values(row, id, liked=False, bookmarked=False) for id, row in zip(ids, rows, strict=True)
            ]
            return [post if post is not None and post.banned else None for post in posts]

        name = f"banned in {key}"
        return await page_by_position(name, page, ids_in_sorted_set(self.functions, key), load)

    async def hashtag(self, viewer: Actor | None, tag: str, page: Page, *, users: bool = True) -> PageResult[FeedItem]:
        """List the posts with a hashtag, newest first. Two round trips on one server, three on a cluster."""
        key = HASHTAG_POSTS(require_tag(tag, "tag"))
        return await self._by_time(ReadView(viewer, users), key, page, only_shown=True)

    async def ranked(self, viewer: Actor | None, tag: str, page: Page, *, users: bool = True) -> PageResult[FeedItem]:
        """List the posts with a hashtag, best first. Two round trips; three if a second page stores a snapshot."""
        key = HASHTAG_RANKED(require_tag(tag, "tag"))
        view = self._ranked_view(viewer, users)
        load, seen = partial(self.reader.items, view), partial(self.reader.visible, view)

        async def rank(offset: int) -> int | None:
            found = await self.reader.at_offset(view, key, offset, 1, only_shown=True)
            return found and found.rank

        return await self.snapshots.page(key, page, partial(self._top, key), load, seen, rank)

    async def top_posts(self, viewer: Actor, tags: str, each: int, *, users: bool = True) -> list[TopPosts]:
        """List the best posts of each hashtag. Two or three round trips; more where many posts are hidden."""
        wanted = list(dict.fromkeys(require_tag(tag.strip(), "hashtags") for tag in tags.split(",") if tag.strip()))
        if not 1 <= len(wanted) <= MAX_SEARCHED_TAGS:
            raise Invalid(f"Must be 1 to {MAX_SEARCHED_TAGS} hashtags, separated by commas.", field="hashtags")
        view, most = self._ranked_view(viewer, users), each + SPARE_POSTS
        found = await self.valkey.batch([("ZRANGE", HASHTAG_RANKED(tag), 0, most - 1, "REV") for tag in wanted])
        items = iter(await self.reader.items(view, [id for ids in found for id in ids]))
        shown = [[item for item in (next(items) for _ in ids) if item is not None][:each] for ids in found]
        for i, ids in enumerate(found):
            if len(shown[i]) < each and len(ids) == most:
                shown[i] = await self._best_visible(view, HASHTAG_RANKED(wanted[i]), each)
        return [TopPosts(tag, posts) for tag, posts in zip(wanted, shown, strict=True)]

    def _ranked_view(self, viewer: Actor | None, users: bool) -> ReadView:
        """Other services leave posts of more than 14 days in the ranked sets, with the score 0: they are not shown."""
        return ReadView(viewer, users, created_after=self.clock.now_ms() - RANKED_MS)

    async def _best_visible(self, view: ReadView, key: str, count: int) -> list[FeedItem]:
        """Return the best visible posts although many better ones are hidden. Reads at most 1,000 ids."""
        ids = await self._top(key, MAX_IDS_READ)

        async def after(place: int | None, count: int) -> list[tuple[str, int]]:
            first = 0 if place is None else place + 1
            return [(id, first + i) for i, id in enumerate(ids[first : first + count])]

        items, _ = await fill_page(Page(limit=count), after, None, partial(self.reader.items, view))
        return items

    async def top_models(self, viewer: Actor, page: Page) -> PageResult[TopModel]:
        """List the models by engagement. One round trip if the profiles are cached, else two; more after page one."""
        key = MODELS_TOP_ENGAGEMENT()
        profiles = self.users.public_profiles if self.valkey.clustered else self._profiles.many
        scores: dict[str, float | None] = {}

        async def top(count: int) -> list[str]:
            rows = await self.valkey.call("ZRANGE", key, 0, count - 1, "REV", "WITHSCORES", shared=True)
            scores.update(rows)
            return [name for name, _ in rows]

        async def load(names: Sequence[str]) -> Sequence[TopModel | None]:
            if not all(name in scores for name in names):  # of a snapshot
                scores.update(zip(names, await self.valkey.call("ZMSCORE", key, *names), strict=True))
            known = self._known_models([(name, scores[name]) for name in names])
            if known is not None and self._profiles.hides_none(viewer, names):
                return known
            # A user who is no longer a model has no score.
            return [
                None if user is None or (score := scores[name]) is None else _top_model(user, parse_int(score))
                for name, user in zip(names, await profiles(viewer, names), strict=True)
            ]

        return await self.snapshots.page(key, page, top, load, partial(self.users.visible, viewer))

    def _known_models(self, scored: Sequence[tuple[str, float | None]]) -> EncodedItems[TopModel] | None:
        """Return these models if they were asked for before and their profiles are cached."""
        name = tuple(scored)
        found = self._model_pages.get(name)
        if found is None and self._model_pages.is_wanted(name):
            cached = ((self.reader.profiles.get(USER(model)), score) for model, score in scored)
            models = [_top_model(user, parse_int(score)) for user, score in cached if user and score is not None]
            if len(models) == len(scored):
                found = EncodedItems(models)
                size = len(found.json) + ITEM_BYTES * len(found)
                self._model_pages.put(name, found, size, [USER(model) for model, _ in scored])
        return found

    async def _top(self, key: str, count: int) -> list[str]:
        top: list[str] = await self.valkey.call("ZRANGE", key, 0, count - 1, "REV", shared=True)
        return top

    async def _by_time(self, view: ReadView, key: str, page: Page, *, only_shown: bool = False) -> PageResult[FeedItem]:
        """Return a page of a list by time. `only_shown`: banned and deleted posts are not in the list."""
        load, seen = partial(self.reader.items, view), partial(self.reader.visible, view)

        async def at_offset(offset: int, count: int) -> list[tuple[str, Position]] | None:
            found = await self.reader.at_offset(view, key, offset, count, only_shown=only_shown)
            return found and found.positions(key)

        return await page_by_position(key, page, ids_in_sorted_set(self.functions, key), load, seen, at_offset)


def _top_model(user: User, engagement: int) -> TopModel:
    return TopModel(engagement=engagement, **msgspec.structs.asdict(user))
