"""Which records name which others, so that an export beside a running server is complete in itself.

A record may name one that was written too late for its own part of the file: a like of a post of a minute ago. The
import would refuse such a line, so it is left out. So is what names a record that other services have deleted.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping
from typing import Any, Final

from plaza.articles.comments import split_id
from plaza.community.records import Record

# The field with the id of each type that others name.
_IDS: Final[Mapping[str, str]] = {
    "user": "username",
    "post": "id",
    "comment": "id",
    "picture_content": "digest",
    "picture": "id",
    "article": "id",
    "article_comment": "id",
    "challenge": "id",
    "challenge_post": "id",
    "challenge_comment": "id",
    "item": "id",
    "order": "id",
}
_IN_CHALLENGE: Final = {"challenge_id": "challenge"}
_ON_CHALLENGE_POST: Final = {**_IN_CHALLENGE, "post_id": "challenge_post"}
# By type: its fields that name a record without which an import refuses this one, with the type of that record.
_NAMES: Final[Mapping[str, Mapping[str, str]]] = {
    "follow": {"follower": "user", "following": "user"},
    "post": {"username": "user"},
    "like": {"post_id": "post"},
    "bookmark": {"post_id": "post"},
    "comment": {"username": "user", "post_id": "post", "reply_to": "comment"},
    "ban": {"post_id": "post"},
    "mute": {"username": "user", "target": "user"},
    "block": {"username": "user", "target": "user"},
    "suspension": {"username": "user"},
    "picture": {"digest": "picture_content"},
    "picture_use": {"picture_id": "picture"},
    "post_pictures": {"post_id": "post"},
    "avatar": {"username": "user", "picture_id": "picture"},
    "vote": {"article_id": "article"},
    "article_comment": {"reply_to": "article_comment"},
    "member": _IN_CHALLENGE,
    "tracking": _IN_CHALLENGE,
    "challenge_post": _IN_CHALLENGE,
    "challenge_invitation": _IN_CHALLENGE,
    "reaction": _ON_CHALLENGE_POST,
    "challenge_comment": {**_ON_CHALLENGE_POST, "reply_to": "challenge_comment"},
    "order_line": {"order_id": "order", "item_id": "item"},
    "stock_change": {"item_id": "item"},
    "notification_preference": {"username": "user"},
}


class WrittenRecords:
    """The ids of the records in a file so far. About 120 bytes for each user, post, comment, article and so on."""

    def __init__(self, kinds: Collection[str]) -> None:
        self._ids: dict[str, set[Any]] = {kind: set() for kind in kinds if kind in _IDS}

    def complete(self, kind: str, record: Record) -> Record | None:
        """Return a record without pictures that the file lacks, and note it. None if it lacks more that this names."""
        if not all(id in self._ids[named] for named, id in _references(kind, record) if named in self._ids):
            return None
        if "media" in record and "picture" in self._ids:
            record = self._with_known_pictures(record)
            if kind == "post_pictures" and not record["media"]:
                return None
        if kind in self._ids:
            self._ids[kind].add(record[_IDS[kind]])
        return record

    def _with_known_pictures(self, record: Record) -> Record:
        known = [picture for picture in record["media"] if picture["id"] in self._ids["picture"]]
        if len(known) == len(record["media"]):
            return record
        complete = {**record, "media": known}
        if known[:1] != record["media"][:1]:
            complete |= {name: False for name in ("is_address",) if name in record}
        return complete


def _references(kind: str, record: Record) -> Iterator[tuple[str, Any]]:
    if kind == "edit_history":
        yield record["subject"], record["id"]
    if kind == "article_comment":
        yield "article", split_id(record["id"])[0]
    for field, named in _NAMES.get(kind, {}).items():
        if record.get(field) is not None:
            yield named, record[field]
