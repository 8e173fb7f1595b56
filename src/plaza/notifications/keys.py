"""The keys of notifications. All are Plaza's own, and those of one user share a slot, so each change is atomic."""

from __future__ import annotations

from plaza.core.keyspace import Catalogue, Formula, Key, KeyAccess, Reference
from plaza.core.notification_source import MAX_ACTORS, NOTIFICATION_TYPES
from plaza.core.tokens import USERNAME

MAX_GROUPS = 1_000

_MS = "Unix milliseconds"
_REPAIR = "notifications <username>"

NOTIFICATIONS = Key(
    "notifications:<username>",
    "zset",
    "A user's notifications: groups of actors who did the same to one subject. "
    f"At most {MAX_GROUPS:,}; the oldest go first.",
    contains="group: `<type>:<subject>:<number>`",
    score=f"the latest actor's time, {_MS}",
    owner="username",
    element_regex="<notification>",
    invariants=(
        Reference("notifications:<username>:actors:<notification>", repair=_REPAIR),
        Formula("each is in `notifications:<username>:groups`, and its score is that of its latest actor"),
    ),
    repair=_REPAIR,
    read=KeyAccess.SELF,
)
NOTIFICATIONS_UNREAD = Key(
    "notifications:<username>:unread",
    "zset",
    "The notifications that the user has not read.",
    contains="group",
    score=f"the latest actor's time, {_MS}",
    owner="username",
    element_regex="<notification>",
    invariants=(Formula("each is in `notifications:<username>`, with the same score"),),
    repair=_REPAIR,
    read=KeyAccess.SELF,
)
NOTIFICATION_GROUPS = Key(
    "notifications:<username>:groups",
    "hash",
    "The groups of each type and subject, the newest first. New actors are added to the newest while it is unread.",
    contains=f"`<type>:<subject>` → JSON `[[number, first actor's time in {_MS}, actors beyond the exact ones, "
    "author of the post that it is below (may be missing)], …]`",
    owner="username",
    element_regex="<about>",
    value_regex=r"\[\[.+\]\]",
    invariants=(Formula("each group is in `notifications:<username>`"),),
    repair=_REPAIR,
    read=KeyAccess.SELF,
)
NOTIFICATION_ACTORS = Key(
    "notifications:<username>:actors:<notification>",
    "zset",
    f"The actors of a group, the latest {MAX_ACTORS:,}.",
    contains="username, or `@` and what happened",
    score=f"when, by source data, {_MS}",
    owner="username",
    element_regex="@[a-z]+|<username>",
    invariants=(
        Formula("the group is in `notifications:<username>`"),
        Formula("each did it, by source data"),
    ),
    repair="notification <username> <notification>",
    read=KeyAccess.SELF,
)
NOTIFICATIONS_DISMISSED = Key(
    "notifications:<username>:dismissed",
    "zset",
    "Until when activities are not shown again, because the user dismissed them or there were too many.",
    contains="`<type>:<subject>`",
    score=f"the time of the latest dismissed actor, {_MS}",
    owner="username",
    element_regex="<about>",
    lifetime=f"the latest {MAX_GROUPS:,}",
    read=KeyAccess.SELF,
)
NOTIFICATION_PREFERENCES = Key(
    "notifications:<username>:preferences",
    "hash",
    "The types of notifications that a user has turned off, or had turned off before. What happened then is not told.",
    contains=f"type → `off:<since>`, or `<since>-<until>`, {_MS}",
    owner="username",
    element_regex="|".join(NOTIFICATION_TYPES),
    value_regex="off:[0-9]{1,16}|[0-9]{1,16}-[0-9]{1,16}",
    read=KeyAccess.SELF,
)
NOTIFIED = Key(
    "notified:<root>",
    "zset",
    "The users who were told of replies and mentions, by what these are below. They end with it.",
    contains="`<subject> <type> <username>`",
    score="0",
    owner="root",
    element_regex="<root>(?::[A-Za-z0-9_-]{1,64})? [a-z_]{1,20} <username>",
    read=KeyAccess.ADMIN,
)

_ROOT = r"[a-z_]{1,20}:[A-Za-z0-9_-]{1,64}"
_ABOUT = r"[a-z_]{1,20}(?::[A-Za-z0-9_-]{1,64}){1,3}"

CATALOGUE = Catalogue.from_module(
    "notifications",
    globals(),
    {"username": USERNAME, "notification": rf"{_ABOUT}:[0-9]{{1,15}}", "about": _ABOUT, "root": _ROOT},
)
