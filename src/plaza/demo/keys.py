"""The keys of the demo."""

from __future__ import annotations

from plaza.core.keyspace import Catalogue, HashField, Key, KeyAccess

DEMO = Key(
    "demo:state",
    "hash",
    "The state of the demo community. Absent: there is no demo.",
    fields=(
        HashField("state", "`wanted` until it is loaded, then `loaded`", KeyAccess.ADMIN),
        HashField("since", "when it was requested, Unix milliseconds; all its data is older", KeyAccess.ADMIN),
        HashField("on", "`1`: the simulation runs and demo accounts can be used; `0`: neither", KeyAccess.ADMIN),
    ),
    read=KeyAccess.ADMIN,
)
DEMO_RUNS = Key(
    "demo:runs",
    "hash",
    "The progress of each run, so that an interrupted run continues and no run is done twice.",
    contains="`community`, or `<seed>:<users>:<posts>` → JSON `[stage, completed batches of it]`",
    read=KeyAccess.ADMIN,
)
DEMO_SEEDS = Key(
    "demo:seeds",
    "hash",
    "When each seed was first used. All data of the seed is older, in every run.",
    contains="seed → Unix milliseconds",
    read=KeyAccess.ADMIN,
)

CATALOGUE = Catalogue.from_module("demo", globals(), {})
