"""What the demo remembers of itself."""

from __future__ import annotations

from plaza.core.keyspace import Catalogue, HashField, Key, KeyAccess

DEMO = Key(
    "demo:state",
    "hash",
    "The demo community: whether there is one, and whether it is kept alive. Absent: there is none.",
    fields=(
        HashField("state", "`wanted` until it is there, then `loaded`", KeyAccess.ADMIN),
        HashField(
            "since", "when it was asked for, Unix milliseconds; everything in it lies before that", KeyAccess.ADMIN
        ),
        HashField(
            "on", "`1`: the simulation runs and its accounts open without a password; `0`: neither", KeyAccess.ADMIN
        ),
    ),
    read=KeyAccess.ADMIN,
)
DEMO_RUNS = Key(
    "demo:runs",
    "hash",
    "How far each community has been made, so that a run that was broken off goes on and none is made twice.",
    contains="`community`, or `<seed>:<users>:<posts>` → JSON `[stage, batches of it that are done]`",
    read=KeyAccess.ADMIN,
)
DEMO_SEEDS = Key(
    "demo:seeds",
    "hash",
    "When each seed was first used: what follows from it lies before that moment, in every run.",
    contains="seed → Unix milliseconds",
    read=KeyAccess.ADMIN,
)

CATALOGUE = Catalogue.from_module("demo", globals(), {})
