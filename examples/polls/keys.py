"""The keys of polls and their invariants.

A poll owns its hash and its votes: on a cluster they share a slot, so a vote is one atomic step. The other two keys are
projections.
"""

from __future__ import annotations

from plaza.core.keyspace import Catalogue, CountField, HashField, Key, KeyAccess, Reference, RequiresKey, ScoreField
from plaza.core.tokens import USERNAME

_REPAIR = "poll <poll>"

POLL = Key(
    "poll:<poll>",
    "hash",
    "A poll.",
    owner="poll",
    fields=(
        HashField("author", "username", value_regex="<username>", required=True),
        HashField("question", "1 to 200 characters", required=True),
        HashField("options", "a JSON array of texts", required=True),
        HashField("votes", "number of votes", value_regex="<count>", required=True),
    ),
    repair=_REPAIR,
    read=KeyAccess.PUBLIC,
)
POLL_VOTES = Key(
    "poll:<poll>:votes",
    "hash",
    "The votes of a poll.",
    contains="username → number of the option, from 1",
    owner="poll",
    element_regex="<username>",
    value_regex="[1-9]|10",
    invariants=(CountField("poll:<poll>", "votes"), RequiresKey("poll:<poll>", repair=_REPAIR)),
)
POLLS_POPULAR = Key(
    "polls:popular",
    "zset",
    "All polls by votes.",
    contains="poll id",
    score="number of votes",
    element_regex="<poll>",
    invariants=(ScoreField("poll:<poll>", "votes"),),
    repair=_REPAIR,
    read=KeyAccess.PUBLIC,
)
USER_POLLS = Key(
    "polls:<username>:voted",
    "set",
    "The polls that a user voted in, to export and delete the votes.",
    contains="poll id",
    owner="username",
    element_regex="<poll>",
    invariants=(Reference("poll:<poll>"),),
    repair="voter <poll> <username>",
    read=KeyAccess.SELF,
)

CATALOGUE = Catalogue.from_module("polls", globals(), {"poll": "[0-9a-f]{32}", "username": USERNAME})
