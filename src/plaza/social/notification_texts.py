"""Who may be told of texts: the users that a post, a comment or a reply concerns or mentions."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from typing import Any, Final

from plaza.core.mentions import mentions_in
from plaza.core.notification_source import EVERYONE_TOLD, Activity, GroupName
from plaza.core.valkey import Valkey
from plaza.social.keys import COMMENT, POST, POST_COMMENTS_RECENT
from plaza.social.users import Users

# On a cluster the text of a comment is stored right after its event. Another service may never store it.
TEXT_WAIT_SECONDS: Final = (0.05, 0.2, 0.5, 0.0)


class TextActivities:
    """Reads texts, and returns who may be told of them."""

    def __init__(self, valkey: Valkey, users: Users) -> None:
        self._valkey = valkey
        self._users = users

    async def of_comments(self, rows: Sequence[dict[str, Any]]) -> list[Activity]:
        """Return who may be told of comments: the post's author, the user replied to, the users mentioned.

        `rows` are data of events. What another service deletes has no `username`. Of one that was `edited`,
        also those who were told before.
        """
        stored = await self._stored_comments(rows)
        authors = await self._valkey.batch([("HGET", POST(row["post"]), "user_id") for row in rows])
        parents = [row.get("reply_to") or found[2] for row, found in zip(rows, stored, strict=True)]
        replied_to = await self._valkey.batch([("HGET", COMMENT(parent or "-"), "username") for parent in parents])
        texts = [found[1] or "" for found in stored]
        names = await self._users.current_names(sorted({name for text in texts for name in mentions_in(text)}) or ["-"])
        found: list[Activity] = []
        for row, (written_by, _, _), author, parent, other, text in zip(
            rows, stored, authors, parents, replied_to, texts, strict=True
        ):
            actor = written_by or row.get("username")
            if not actor:
                continue
            subject, owner = f"comment:{row['post']}:{row['comment']}", author or row.get("author", "")
            groups = [GroupName(owner, "comment", f"post:{row['post']}")] if owner else []
            if other:
                groups.append(GroupName(other, "reply", f"comment:{row['post']}:{parent}"))
            mentioned = {names[name] for name in mentions_in(text) if name in names}
            mentioned |= {EVERYONE_TOLD} if row.get("edited") else set()
            groups += [GroupName(name, "mention", subject) for name in mentioned]
            at_ms, comment = row.get("time", 0), row["comment"]
            found += [Activity(group, actor, at_ms, comment, owner=owner) for group in groups]
        return found

    async def of_post(self, post: str, *, edited: bool = False) -> list[Activity]:
        """Return the users that a post mentions; of an edited one, also those who were told before."""
        author, content = await self._valkey.call("HMGET", POST(post), "user_id", "content")
        if author is None:
            return []
        names = mentions_in(content or "")
        current = await self._users.current_names(names) if names else {}
        recipients = {*current.values(), *([EVERYONE_TOLD] if edited else [])}
        return [Activity(GroupName(name, "mention", f"post:{post}"), author) for name in recipients]

    async def _stored_comments(self, rows: Sequence[Mapping[str, Any]]) -> list[list[str | None]]:
        """Return author, text and parent of comments. The text of a new one may follow its event, so wait for it."""
        hashes = [("HMGET", COMMENT(row["comment"]), "username", "content", "reply_to") for row in rows]
        listed = [("ZSCORE", POST_COMMENTS_RECENT(row["post"]), row["comment"]) for row in rows]
        for seconds in TEXT_WAIT_SECONDS:
            replies = await self._valkey.batch([*hashes, *listed])
            stored, times = replies[: len(rows)], replies[len(rows) :]
            if not any(text[0] is None and at is not None for text, at in zip(stored, times, strict=True)):
                break
            await asyncio.sleep(seconds)
        return stored
