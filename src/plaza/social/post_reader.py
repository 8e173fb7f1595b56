"""Reads posts for a viewer: with the viewer's flags, without posts that are hidden from the viewer.

Most pages show posts that other pages have just loaded, so on one server posts and profiles are cached in the process,
and Valkey's client tracking invalidates them. So are short lists: the likes of a post, a viewer's blocks, mutes,
follows and bookmarks. An invalidation arrives on the same connection as the ids of a list, and before them: a list read
after a change shows the change. What is not cached is read by one query, which follows posts to their authors.

On a cluster a post's author is on another node. So nothing is cached, and a page takes a second batch.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from copy import copy
from sys import getsizeof
from typing import Any, Final, NamedTuple

import msgspec
from msgspec import Struct, field

from plaza.core.auth import Actor
from plaza.core.functions import Functions
from plaza.core.number_parsing import parse_int
from plaza.core.paging import EncodedItems, Position, encode_to_store, list_checksum
from plaza.core.sequences import chunks, pairs
from plaza.core.tracking_cache import TrackingCache
from plaza.social.keys import EXPLORE_FEED, POST, POST_LIKES, USER, USER_BOOKMARKED, USER_FOLLOWING, USER_MUTED
from plaza.social.known_pages import KnownPages
from plaza.social.model import POST_FIELDS, PUBLIC_FIELDS, FeedItem, Post, User, post_from_values, public_user
from plaza.social.read_view import Command, Members, Question, ReadView, ViewerMarks, hidden_authors, hiding_keys

# Each stands for 8 kB of a post, or a part of that, with its JSON and likes: most posts are a tenth of it.
MAX_CACHED_POSTS: Final = 4_096
POST_BYTES: Final = 8_192
MAX_CACHED_PROFILES: Final = 8_192
# A longer list is not cached: Valkey says what is in it. Most lists have a few members.
MAX_CACHED_MEMBERS: Final = 100
MEMBER_BYTES: Final = 100
# All lists of viewers together have so many members, each list counted as two more: some 40 MB, for 3,000 viewers who
# follow a hundred users each, or 20,000 who follow ten.
MAX_CACHED_LISTS: Final = 400_000

# Pages that viewers have in common.
MAX_KNOWN_PAGES: Final = 256
MAX_KNOWN_BYTES: Final = 16 * 1024 * 1024
# What a page takes for each post, besides its text and JSON.
ITEM_BYTES: Final = 1_000

_encode = msgspec.json.Encoder().encode

_LIKES_SUFFIX: Final = POST_LIKES("").removeprefix(POST(""))

# Reading this many uncached posts takes Valkey about 1.5 ms.
MAX_POSTS_PER_READ: Final = 100


class RankedRows(NamedTuple):
    """Ids with their scores, and the rank of the first."""

    rank: int
    rows: Sequence[tuple[str, float]]

    def positions(self, key: str) -> list[tuple[str, Position]]:
        name = list_checksum(key)
        return [(id, Position(name, score, id)) for id, score in self.rows]


class PostReader:
    def __init__(self, functions: Functions) -> None:
        self.functions = functions
        self.valkey = functions.valkey
        self.posts: TrackingCache[CachedPost] = TrackingCache(
            functions.valkey, MAX_CACHED_POSTS, _cached_post_of, _post_size
        )
        self.profiles: TrackingCache[User] = TrackingCache(functions.valkey, MAX_CACHED_PROFILES)
        self.lists: TrackingCache[Members] = TrackingCache(functions.valkey, MAX_CACHED_LISTS, size_of=_list_size)
        self.pages: KnownPages[KnownPage] = KnownPages(
            functions.valkey, MAX_KNOWN_PAGES, MAX_KNOWN_BYTES, _cached_post_of
        )

    async def single(self, viewer: Actor | None, id: str) -> Post | None:
        """Return a post, None for one that is deleted, banned or hidden. One round trip; two on a cluster."""
        if self._cached_post(viewer, id) is not None:
            await self.receive_invalidations()
            if (post := self._cached_post(viewer, id)) is not None:
                return post
        (item,) = await self.items(ReadView(viewer, users=False, feed=False), [id], listed=False)
        return None if item is None else item.post

    def _cached_post(self, viewer: Actor | None, id: str) -> Post | None:
        """Return a post with the viewer's flags if what is cached shows that it is visible."""
        cached = self.posts.get(POST(id))
        if cached is None or cached.post.banned:
            return None
        post, likes = cached.post, cached.likes
        if viewer is None:
            return post
        *hiding, bookmarks = (self.lists.get(key) for key in (*hiding_keys(viewer), USER_BOOKMARKED(viewer.name)))
        if not (is_short(likes) and is_short(bookmarks) and all(map(is_short, hiding))):
            return None
        if any(post.user_id in (users or ()) for users in hiding):
            return None
        is_liked, is_bookmarked = viewer.name in (likes or ()), id in (bookmarks or ())
        return _with_flags(post, is_liked, is_bookmarked) if is_liked or is_bookmarked else post

    async def items(self, view: ReadView, ids: Sequence[str], *, listed: bool = True) -> list[FeedItem | None]:
        """Return posts for a viewer, None for one that is deleted, banned or hidden.

        One round trip for each hundred, two on a cluster. Cached posts are used only if invalidations have arrived:
        if the ids were read from Valkey just now (`listed`), or after another command.
        """
        if len(ids) <= MAX_POSTS_PER_READ:
            return await self._read_posts(view, ids, listed)
        found: list[FeedItem | None] = []
        for chunk in chunks(ids, MAX_POSTS_PER_READ):
            found += await self._read_posts(view, chunk, listed)
        return found

    async def _read_posts(self, view: ReadView, ids: Sequence[str], listed: bool) -> list[FeedItem | None]:
        if not ids:
            return []
        if self.valkey.clustered:
            return await self._from_cluster(view, ids)
        # Each home feed has its own pages.
        name = (view.users, *ids) if listed and not view.followed else None
        known = None if name is None else self.pages.get(name)
        lists = self._cached_lists(view)
        if known is not None and known.is_plain_for(view, lists):
            return known.items
        if (
            listed
            and (known is not None or name is None)
            and (items := self._cached_items(view, ids, lists)) is not None
        ):
            return items
        loaded = self._cached(view, ids, lists) if known is None else known.loaded(lists)
        if not listed and loaded.is_complete(view, ids):
            await self.receive_invalidations()
            loaded = self._cached(view, ids, self._cached_lists(view))
        elif not listed:
            loaded = LoadedPosts()
        names = loaded.authors()
        missing = [id for id in ids if id not in loaded.posts]
        missing_authors = [name for name in names if name not in loaded.profiles] if view.users else []
        missing_lists = [key for key in view.lists if key not in loaded.lists]
        # A list that is cached, and is short, answers for itself.
        questions = [each for each in view.questions(names, ids) if not is_short(loaded.lists.get(each.key))]
        commands = [question.command() for question in questions]
        unsure = [id for id in ids if id not in loaded.likes] if view.viewer else []
        if view.viewer is not None and unsure:
            commands.append(self.functions.query_command("social_liked", [], view.viewer.name, *unsure))
        are_relations_known = all(is_short(loaded.lists.get(key)) for key in view.relations)
        if view.viewer is not None and missing and not are_relations_known:
            commands.append(self._hidden_query(view, missing))
        if missing or missing_authors or missing_lists:
            replies = await self.load_missing(view, loaded, missing, missing_authors, missing_lists, commands)
        else:
            if known is None and name is not None and self.pages.is_wanted(name):
                page = KnownPage(ids, loaded, _items(ReadView(None), ids, loaded, ViewerMarks()))
                self.pages.put(name, page, page.size, [*map(POST, ids), *map(USER, loaded.profiles)])
            replies = await self.valkey.batch(commands) if commands else []
        marks = _marks(view, loaded, questions, unsure, missing, replies)
        if known is not None and known.is_same_for(view, marks):
            return known.items
        return _items(view, ids, loaded, marks)

    async def receive_invalidations(self) -> None:
        """Return when the invalidations of all earlier changes have arrived. One round trip, shared by its callers."""
        await self.valkey.call("EXISTS", EXPLORE_FEED(), shared=True)

    async def visible(self, view: ReadView, ids: Sequence[str]) -> list[bool]:
        """Return which posts the viewer may see. Two round trips; much cheaper than `items`."""
        rows = await self.valkey.batch([("HMGET", POST(id), "user_id", "banned", "created_at") for id in ids])
        names = list(dict.fromkeys(author for author, _, _ in rows if author is not None))
        hidden = await self._hidden_authors(view, names)
        return [
            author is not None and banned is None and author not in hidden and parse_int(created) >= view.created_after
            for author, banned, created in rows
        ]

    async def at_offset(
        self, view: ReadView, key: str, offset: int, count: int, *, only_shown: bool = False
    ) -> RankedRows | None:
        """Return the posts of a sorted set after so many visible ones; None if these must be counted in steps.

        `only_shown`: banned and deleted posts are not in the list. Then the offset is a rank if no user is hidden from
        the viewer, which takes one round trip. Otherwise, on one server, Valkey counts the visible posts, in one more.
        With `created_after`, posts that are too old have the score 0.
        """
        if only_shown:
            rows, *lists = await self.valkey.batch(
                [("ZRANGE", key, offset, offset + count - 1, "REV", "WITHSCORES"), *_hiding_commands(view)]
            )
            may_skip_old_posts = view.created_after and not (rows and rows[0][1] > 0)
            if not any(lists) and not may_skip_old_posts:
                return RankedRows(offset, rows)
        if self.valkey.clustered:
            return None
        keys = [key, *_viewer_keys(view)]
        args = (offset, count, int(view.feed), int(view.followed), view.created_after)
        reply = await self.functions.query("social_list_at_offset", keys, *args)
        return None if reply is None else RankedRows(reply[0], [(id, float(score)) for id, score in pairs(reply[1])])

    def _cached(self, view: ReadView, ids: Sequence[str], lists: dict[str, Members]) -> LoadedPosts:
        loaded = LoadedPosts(lists=lists)
        for id in ids:
            cached = self.posts.get(POST(id))
            if cached is not None:
                loaded.posts[id] = cached.post
                if cached.likes is not False:
                    loaded.likes[id] = cached.likes
        if view.users:
            loaded.profiles = {name: profile for name in loaded.authors() if (profile := self.profiles.get(USER(name)))}
        return loaded

    def _cached_items(
        self, view: ReadView, ids: Sequence[str], lists: Mapping[str, Members]
    ) -> list[FeedItem | None] | None:
        """Return a page if all of it is cached, else None. In one pass, because most pages are."""
        short = {key: members for key in view.lists if (members := lists.get(key)) is not None and members is not False}
        posts = self.posts.get_all(map(POST, ids)) if view.users and len(short) == len(view.lists) else None
        if posts is None or any(each.likes is False for each in posts):
            return None
        users = self.profiles.get_all(USER(each.post.user_id) for each in posts)
        if users is None:
            return None
        hidden = frozenset[str]().union(*(short[key] for key in view.hiding_lists))
        me, bookmarked = view.viewer and view.viewer.name, short.get(view.bookmarked or "", ())
        followed = None if view.following is None else short[view.following]
        items, parts = list[FeedItem | None](), list[bytes]()
        for id, each, user in zip(ids, posts, users, strict=True):
            post, author = each.post, each.post.user_id
            is_liked, is_bookmarked = me in (each.likes or ()), id in bookmarked
            is_visible = author not in hidden and (followed is None or author in followed)
            if post.banned or post.created_at < view.created_after or not is_visible:
                items.append(None)
            elif is_liked or is_bookmarked:
                item = FeedItem(_with_flags(post, is_liked, is_bookmarked), user)
                items.append(item)
                parts.append(_encode(item))
            else:
                items.append(each.item(user))
                parts.append(each.json)
        return EncodedItems(items, b"[" + b",".join(parts) + b"]") if len(parts) == len(items) else items

    def _cached_lists(self, view: ReadView) -> dict[str, Members]:
        return {key: members for key in view.lists if (members := self.lists.get(key)) is not None}

    async def load_missing(
        self,
        view: ReadView,
        loaded: LoadedPosts,
        missing: Sequence[str],
        missing_authors: Sequence[str],
        missing_lists: Sequence[str],
        commands: Sequence[Command],
    ) -> list[Any]:
        """Read what is not cached, add it to `loaded` and the cache; return the replies to the other commands."""

        def store(answer: list[list[Any]]) -> None:
            more = LoadedPosts.from_values(missing, missing_lists, *answer)
            for id, post in more.posts.items():
                if _cached_post_of(POST(id)) == POST(id):  # not if another service gave it an id that ends like a key
                    self.posts.put(POST(id), CachedPost(post, more.likes.get(id, False)))
            for name, profile in more.profiles.items():
                self.profiles.put(USER(name), profile)
            for key, members in more.lists.items():
                self.lists.put(key, members)

        sorted_sets = [key for key in missing_lists if key != view.following]
        keys = [*map(POST, missing), *map(USER, missing_authors), *missing_lists]
        fields = ",".join(PUBLIC_FIELDS) if view.users else ""
        args = (len(missing), len(missing_authors), len(sorted_sets), fields, *POST_FIELDS)
        answer, *replies = await self.functions.query_with_batch("social_page_data", keys, args, commands, store=store)
        more = LoadedPosts.from_values(missing, missing_lists, *answer)
        loaded.posts |= more.posts
        loaded.profiles |= more.profiles
        loaded.likes |= more.likes
        loaded.lists |= more.lists
        return replies

    def _hidden_query(self, view: ReadView, posts: Sequence[str]) -> Command:
        """Return the query for the posts that are hidden because of their authors, who are not known here."""
        keys, flags = [*_viewer_keys(view), *map(POST, posts)], (int(view.feed), int(view.followed))
        return self.functions.query_command("social_posts_hidden", keys, *flags)

    async def _hidden_authors(self, view: ReadView, names: Sequence[str]) -> set[str]:
        questions = view.questions(names)
        replies = await self.valkey.batch([question.command() for question in questions])
        members = {each.key: each.answer(reply) for each, reply in zip(questions, replies, strict=True)}
        return hidden_authors(view, names, members)

    async def _from_cluster(self, view: ReadView, ids: Sequence[str]) -> list[FeedItem | None]:
        commands: list[Command] = [("HMGET", POST(id), *POST_FIELDS) for id in ids]
        about_posts = view.questions((), ids)
        if view.viewer is not None:
            commands += [("SISMEMBER", POST_LIKES(id), view.viewer.name) for id in ids]
        replies = await self.valkey.batch([*commands, *(question.command() for question in about_posts)])
        loaded = LoadedPosts.from_values(ids, [], replies[: len(ids)])
        names = loaded.authors()
        profiles: list[Command] = [("HMGET", USER(name), *PUBLIC_FIELDS) for name in names] if view.users else []
        about_authors = view.questions(names)
        author_replies = await self.valkey.batch([*profiles, *(question.command() for question in about_authors)])
        loaded.profiles = {
            name: profile
            for name, values in zip(names, author_replies[: len(profiles)], strict=False)
            if (profile := public_user(values, name))
        }
        questions = [*about_authors, *about_posts]
        answers = [*author_replies[len(profiles) :], *replies[len(commands) :], replies[len(ids) : len(commands)]]
        return _items(view, ids, loaded, _marks(view, loaded, questions, ids, (), answers))


class CachedPost:
    """A post without a viewer's flags, who likes it, and its item in lists with the JSON."""

    __slots__ = ("_item", "json", "likes", "post")

    def __init__(self, post: Post, likes: Members) -> None:
        self.post = post
        self.likes = likes
        self._item: FeedItem | None = None
        self.json = b""  # of the item

    def item(self, user: User) -> FeedItem:
        """Return the item with this profile of the author."""
        item = self._item
        if item is None or item.user is not user:
            item = self._item = FeedItem(self.post, user)
            self.json = encode_to_store(item)
        return item


def _cached_post_of(key: str) -> str:
    return key.removesuffix(_LIKES_SUFFIX)


def _post_size(cached: CachedPost) -> int:
    text = cached.post.content
    # As text and as JSON; other than ASCII takes up to four bytes a character, and Python keeps its UTF-8 too.
    text_bytes = len(text) * (2 if text.isascii() else 8)
    return 1 + (text_bytes + MEMBER_BYTES * len(cached.likes or ())) // POST_BYTES


def _list_size(members: Members) -> int:
    return 2 + (len(members) if members else 0)


def is_short(members: Members | None) -> bool:
    """Whether all members of a list are known."""
    return members is not None and members is not False


class LoadedPosts(Struct):
    """Posts by id, without a viewer's flags, public profiles by username, and short lists."""

    posts: dict[str, Post] = field(default_factory=dict)
    profiles: dict[str, User] = field(default_factory=dict)
    likes: dict[str, frozenset[str]] = field(default_factory=dict)  # by post; none for a post with many
    lists: dict[str, Members] = field(default_factory=dict)  # of the viewer, by key

    @classmethod
    def from_values(
        cls,
        ids: Sequence[str],
        lists: Sequence[str],
        posts: Sequence[Sequence[str | None]],
        profiles: Sequence[Sequence[str | None]] = (),
        likes: Sequence[list[str] | int] = (),
        members: Sequence[list[str] | int] = (),
    ) -> LoadedPosts:
        """Build it from the values of `POST_FIELDS` and `PUBLIC_FIELDS`, of which the first is the username."""
        return cls(
            {
                id: post
                for id, values in zip(ids, posts, strict=True)
                if (post := post_from_values(values, id, liked=False, bookmarked=False))
            },
            {values[0]: profile for values in profiles if values[0] and (profile := public_user(values, values[0]))},
            {id: frozenset(found) for id, found in zip(ids, likes, strict=False) if not isinstance(found, int)},
            {
                key: False if isinstance(found, int) else frozenset(found)
                for key, found in zip(lists, members, strict=False)
            },
        )

    def is_complete(self, view: ReadView, ids: Sequence[str]) -> bool:
        """Whether a page needs nothing more."""
        return (
            all(id in self.posts for id in ids)
            and (view.viewer is None or all(id in self.likes for id in ids))
            and (not view.users or all(name in self.profiles for name in self.authors()))
            and all(is_short(self.lists.get(key)) for key in view.lists)
        )

    def authors(self) -> list[str]:
        return list({post.user_id: None for post in self.posts.values()})


class KnownPage:
    """The posts of a page, as they are for every viewer who marks none of them."""

    def __init__(self, ids: Sequence[str], loaded: LoadedPosts, items: list[FeedItem | None]) -> None:
        shown = [item for item in items if item is not None]
        self.items: list[FeedItem | None] = EncodedItems(shown) if len(shown) == len(items) else items
        self._ids = frozenset(ids)
        self._loaded = loaded
        self._oldest = min(post.created_at for post in loaded.posts.values())
        self._authors = frozenset(loaded.authors())
        # None if a post has many likes.
        are_likes_known = len(loaded.likes) == len(loaded.posts)
        self._likers = frozenset[str]().union(*loaded.likes.values()) if are_likes_known else None
        texts = sum(getsizeof(post.content) for post in loaded.posts.values())
        json = len(self.items.json) if isinstance(self.items, EncodedItems) else 0
        self.size = json + texts + ITEM_BYTES * len(ids)

    def loaded(self, lists: dict[str, Members]) -> LoadedPosts:
        """Return what is loaded for a viewer with these lists."""
        return LoadedPosts(self._loaded.posts, self._loaded.profiles, self._loaded.likes, lists)

    def is_plain_for(self, view: ReadView, lists: Mapping[str, Members]) -> bool:
        """Whether these lists show that the viewer sees the page without a flag and without a gap."""
        if view.viewer is None or self._oldest < view.created_after:
            return self._oldest >= view.created_after
        hidden, bookmarked = [lists.get(key) for key in view.hiding_lists], lists.get(view.bookmarked or "")
        return (
            self._likers is not None
            and view.viewer.name not in self._likers
            and all(is_short(users) and self._authors.isdisjoint(users or ()) for users in hidden)
            and is_short(bookmarked)
            and self._ids.isdisjoint(bookmarked or ())
        )

    def is_same_for(self, view: ReadView, marks: ViewerMarks) -> bool:
        """Whether the viewer sees the page without a flag and without a gap."""
        has_no_marks = not marks.hidden and not marks.liked and self._ids.isdisjoint(marks.bookmarked)
        return has_no_marks and self._oldest >= view.created_after


def _hiding_commands(view: ReadView) -> list[Command]:
    """Return the commands that read whether any user is hidden from the viewer."""
    return [("EXISTS", key) for key in view.hiding_lists]


def _viewer_keys(view: ReadView) -> list[str]:
    if view.viewer is None:
        return []
    return [*hiding_keys(view.viewer), *(key(view.viewer.name) for key in (USER_MUTED, USER_FOLLOWING))]


def _marks(
    view: ReadView,
    loaded: LoadedPosts,
    questions: Sequence[Question],
    unsure: Sequence[str],
    missing: Sequence[str],
    replies: Sequence[Any],
) -> ViewerMarks:
    """Return a viewer's marks from what is loaded and from replies: to questions, likes, hidden missing posts."""
    if view.viewer is None:
        return ViewerMarks()
    members: dict[str, Collection[str]] = {key: known for key, known in loaded.lists.items() if known is not False}
    rest = list(replies)
    for question in questions:
        answer = question.answer(rest.pop(0))
        if question.key == view.following:  # the authors of missing posts are not asked about
            answer.update(set(loaded.authors()).difference(question.items))
        members.setdefault(question.key, answer)
    me = view.viewer.name
    liked = {id for id, names in loaded.likes.items() if me in names}
    if unsure:
        liked.update(id for id, is_liked in zip(unsure, rest.pop(0), strict=True) if is_liked)
    hidden = hidden_authors(view, loaded.authors(), members)
    if rest:
        (hidden_flags,) = rest
        hidden.update(id for id, is_hidden in zip(missing, hidden_flags, strict=True) if is_hidden)
    return ViewerMarks(hidden, liked, members.get(view.bookmarked or "", ()))


def _with_flags(post: Post, is_liked: bool, is_bookmarked: bool) -> Post:
    post = copy(post)  # the cached one is shared by all viewers
    post.isLiked, post.isBookmarked = is_liked, is_bookmarked
    return post


def _items(view: ReadView, ids: Sequence[str], loaded: LoadedPosts, marks: ViewerMarks) -> list[FeedItem | None]:
    items: list[FeedItem | None] = []
    for id in ids:
        post = loaded.posts.get(id)
        is_shown = post is not None and not post.banned and post.created_at >= view.created_after
        if post is None or not is_shown or post.user_id in marks.hidden or id in marks.hidden:
            items.append(None)
            continue
        is_liked, is_bookmarked = id in marks.liked, id in marks.bookmarked
        if is_liked or is_bookmarked:
            post = _with_flags(post, is_liked, is_bookmarked)
        items.append(FeedItem(post, loaded.profiles.get(post.user_id)))
    return items
