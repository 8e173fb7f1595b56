"""The keys that `core` itself needs. Each domain has a module like this one."""

from __future__ import annotations

from plaza.core.keys import Catalogue, Key

PENDING = Key(
    "pending:<library>:<owner>",
    "hash",
    "On a cluster: operations whose effects on other owners are not settled yet.",
    of="operation id → what it still has to do; `version` counts the owner's operations",
    owner="owner",
    lifetime="until the effects are settled",
)
PENDING_SLOT = Key(
    "pending:<slot>",
    "set",
    "On a cluster: the owners of one slot that have unsettled operations, so that a worker finds them.",
    of="name of a `pending:<library>:<owner>` key",
    owner="slot",
    lifetime="until the effects are settled",
)
EVENTS = Key(
    "events:<stream>",
    "stream",
    "What happened, for consumer groups to react to.",
    of="event",
    lifetime="trimmed once every group has read it",
)

CATALOGUE = Catalogue.of(
    "core",
    globals(),
    {"library": "[a-z]+", "owner": r"[^{}]+", "slot": "[0-9a-z]{1,4}", "stream": "[a-z_]+"},
)
