"""Reads users and what they wrote as records, for `plaza export`."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Sequence
from typing import Any, Final

from plaza.community.records import Record, in_thread_order
from plaza.core.number_parsing import parse_int
from plaza.core.pictures import Pictures, picture_in_address
from plaza.core.search_source import members_in_sorted_set
from plaza.core.sequences import chunks
from plaza.core.valkey import Valkey, scan_pages
from plaza.social import keys as k
from plaza.social.hashtags import tags_in
from plaza.social.private_fields import PrivateFields

# Keys that one round trip reads.
PAGE: Final = 500
_PROFILE: Final = ("display_name", "bio", "avatar", "links")


class SocialExport:
    """Reads the records. With `private`, users have their private fields and password hashes."""

    def __init__(
        self, valkey: Valkey, fields: PrivateFields, pictures: Pictures | None = None, *, private: bool = False
    ) -> None:
        self._valkey = valkey
        self._fields = fields
        self._pictures = pictures
        self._private = private

    def records(self, kind: str) -> AsyncIterator[Record]:
        """Yield all records of a type: by username, then by time."""
        exports: dict[str, Callable[[], AsyncIterator[Record]]] = {
            "user": self._users,
            "follow": lambda: self._lists(k.USER_FOLLOWING_RECENT, "follower", "following"),
            "post": self._posts,
            "like": self._likes,
            "bookmark": lambda: self._lists(k.USER_BOOKMARKED, "username", "post_id"),
            "comment": self._comments,
            "ban": self._bans,
            "block": lambda: self._lists(k.USER_BLOCKED, "username", "target"),
            "mute": lambda: self._lists(k.USER_MUTED, "username", "target"),
            "suspension": self._suspensions,
        }
        return exports[kind]()

    async def names(self) -> list[str]:
        """Return all usernames in order. A scan of all keys."""
        found: set[str] = set()
        for node in self._valkey.primaries():
            async for page in scan_pages(node, "SCAN", match=k.USER("*"), type="hash"):
                matches = [k.CATALOGUE.match(key) for key in page]
                found |= {match.parts[0] for match in matches if match is not None and match.key is k.USER}
        return sorted(found)

    async def _users(self) -> AsyncIterator[Record]:
        for names in chunks(await self.names(), PAGE):
            profiles = await self._valkey.batch([("HGETALL", k.USER(name)) for name in names])
            accounts = await self._valkey.batch([("HGET", k.AUTH_USER(name), "password_hash") for name in names])
            for name, profile, password_hash in zip(names, profiles, accounts, strict=True):
                if not profile:
                    continue  # deleted since the scan
                yield self._user(name, profile, password_hash)

    def _user(self, name: str, profile: dict[str, str], password_hash: str | None) -> Record:
        record: Record = {"username": name, "role": profile.get("role", "user")}
        record["created_at"] = parse_int(profile.get("created_at"))
        own = self._fields.own_profile(profile, name)
        for field in (*_PROFILE, *(k.PRIVATE if self._private else ())):
            value = getattr(own, field, None)
            if profile.get(field) and value and not (field == "avatar" and self._is_own(value)):
                record[field] = value
        if self._private and password_hash:
            record["password_hash"] = password_hash
        return record

    def _is_own(self, url: str) -> bool:
        """Whether an address is one of this Plaza, which `post_pictures` and `avatar` records have."""
        return not url.startswith(("http://", "https://")) or own_picture(url, self._pictures) is not None

    async def _lists(self, key: Any, owner: str, member: str) -> AsyncIterator[Record]:
        for name in await self.names():
            async for id, at in self._sorted_set(key(name)):
                yield {owner: name, member: id, "created_at": at}

    async def _sorted_set(self, key: str) -> AsyncIterator[tuple[str, int]]:
        async for rows in members_in_sorted_set(self._valkey, key):
            for id, score in rows:
                yield id, parse_int(score)

    async def post_hashes(self) -> AsyncIterator[tuple[str, dict[str, str]]]:
        """Yield all posts by their author's username, then by time."""
        for name in await self.names():
            ids = [id async for id, _ in self._sorted_set(k.USER_POSTS(name))]
            for page in chunks(ids, PAGE):
                for id, post in zip(page, await self._hashes(k.POST, page), strict=True):
                    if post.get("user_id"):
                        yield id, post

    async def _hashes(self, key: Any, ids: Sequence[str]) -> list[dict[str, str]]:
        found: list[dict[str, str]] = await self._valkey.batch([("HGETALL", key(id)) for id in ids])
        return found

    async def _posts(self) -> AsyncIterator[Record]:
        async for id, post in self.post_hashes():
            record: Record = {"id": id, "username": post["user_id"], "content": post.get("content", "")}
            url = post.get("media_url", "")
            if url and not self._is_own(url):
                record["media_url"] = url
            yield {**record, "hashtags": _listed_tags(post), "created_at": parse_int(post.get("created_at"))}

    async def _bans(self) -> AsyncIterator[Record]:
        async for id, post in self.post_hashes():
            if "banned" in post:
                by, at = post.get("banned_by", "") or "admin", parse_int(post.get("banned_at"))
                yield {"post_id": id, "banned_by": by, "created_at": at}

    async def _likes(self) -> AsyncIterator[Record]:
        async for id, _ in self.post_hashes():
            async for name, at in self._sorted_set(k.POST_LIKES_RECENT(id)):
                yield {"username": name, "post_id": id, "created_at": at}

    async def _comments(self) -> AsyncIterator[Record]:
        async for post, _ in self.post_hashes():
            ids: list[str] = await self._valkey.call("LRANGE", k.POST_COMMENTS(post), 0, -1)
            found = dict(zip(ids, await self._hashes(k.COMMENT, ids), strict=True))
            # Other services may have written some without them.
            found = {id: comment for id, comment in found.items() if comment.keys() >= {"username", "content"}}
            times = {id: (parse_int(c.get("created_at")), c.get("reply_to")) for id, c in found.items()}
            for id in in_thread_order(times):
                yield _comment(id, post, found[id], found)

    async def _suspensions(self) -> AsyncIterator[Record]:
        for names in chunks(await self.names(), PAGE):
            fields = ("suspended_at", "suspended_by")
            accounts = await self._valkey.batch([("HMGET", k.AUTH_USER(name), *fields) for name in names])
            for name, (at, by) in zip(names, accounts, strict=True):
                if at is not None:
                    yield {"username": name, "suspended_by": by or "admin", "created_at": parse_int(at)}


def _comment(id: str, post: str, comment: dict[str, str], others: dict[str, Any]) -> Record:
    record: Record = {"id": id, "post_id": post, "username": comment["username"], "content": comment["content"]}
    record["created_at"] = parse_int(comment.get("created_at"))
    # A deleted comment has no record, so that a reply to it becomes a comment of its own.
    if comment.get("reply_to") in others:
        record["reply_to"] = comment["reply_to"]
    return record


def _listed_tags(post: dict[str, str]) -> list[str]:
    """Return the tags that a post has beside those of its text, which an edit of the text removes."""
    tags = [tag for tag in post.get("hashtags", "").split(",") if tag]
    in_text = list(tags_in(post.get("content", "")))
    both = post.get("listed_hashtags", "").split(",")
    listed = [tag for tag in tags if tag not in in_text or tag in both]
    # Another service may have written tags in another order: then all of them.
    return listed if list(dict.fromkeys([*in_text, *listed])) == tags else tags


def own_picture(url: str, pictures: Pictures | None) -> str | None:
    """Return the id of the picture of this Plaza that an address shows; None if it is another address."""
    id = picture_in_address(url)
    if id is None or not url.startswith(("http://", "https://")):
        return id
    is_own = pictures is not None and url == pictures.address(id, url.rpartition("/")[2])
    return id if is_own else None
