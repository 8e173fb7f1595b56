"""Finds the users who were told of a reply or a mention. The event of a deleted or banned post does not name them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from plaza.core.notification_source import INDEXED_TYPES, GroupName, root_of
from plaza.core.valkey import Valkey
from plaza.notifications.keys import NOTIFIED


class RecipientIndex:
    """The recipients of replies and mentions, by the post, article or challenge that they are below."""

    def __init__(self, valkey: Valkey) -> None:
        self._valkey = valkey

    async def update(self, groups: Mapping[GroupName, bool]) -> None:
        """Add the groups that exist, of the types that are indexed, and remove the others. At most one round trip."""
        commands: list[tuple[str | int, ...]] = []
        for group, exists in groups.items():
            key, member = NOTIFIED(root_of(group.subject)), f"{group.subject} {group.type} {group.recipient}"
            if group.type in INDEXED_TYPES:
                commands.append(("ZADD", key, 0, member) if exists else ("ZREM", key, member))
        if commands:
            await self._valkey.batch(commands)

    async def find(self, subjects: Sequence[str]) -> list[list[GroupName]]:
        """Return for each subject the groups about it, or of a root, about all below it. One round trip."""
        commands: list[tuple[str, ...]] = []
        for subject in subjects:
            root = root_of(subject)
            span = ("-", "+") if subject == root else (f"[{subject} ", f"({subject}!")
            commands.append(("ZRANGE", NOTIFIED(root), *span, "BYLEX"))
        return [[_group(member) for member in found] for found in await self._valkey.batch(commands)]


def group_of(username: str, id: str) -> GroupName:
    """Return the group of an id: `<type>:<subject>:<number>`."""
    about, _, _ = id.rpartition(":")
    type, _, subject = about.partition(":")
    return GroupName(username, type, subject)


def _group(member: str) -> GroupName:
    subject, type, recipient = member.rsplit(" ", 2)
    return GroupName(recipient, type, subject)
