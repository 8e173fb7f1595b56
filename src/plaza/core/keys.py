"""The keys that `core` itself needs. Each domain has a module like this one."""

from __future__ import annotations

from plaza.core.keyspace import Catalogue, Formula, HashField, Key, KeyAccess

PENDING = Key(
    "pending:<library>:<owner>",
    "hash",
    "On a cluster: operations whose effects on other owners are not settled yet.",
    contains="operation → what it still has to do; recipe → the operation that computed it last",
    invariants=(Formula("no operation is older than a minute"),),
    owner="owner",
    lifetime="until the effects are settled",
    read=KeyAccess.NONE,  # an owner may be a session's token
)
PENDING_SLOT = Key(
    "pending:<slot>",
    "set",
    "On a cluster: the owners of one slot that have unsettled operations, so that a worker finds them.",
    contains="name of a `pending:<library>:<owner>` key",
    element_regex="pending:.+",
    owner="slot",
    lifetime="until the effects are settled",
    read=KeyAccess.NONE,  # an owner may be a session's token
)
EVENTS = Key(
    "events:<stream>",
    "stream",
    "What happened, for consumer groups to react to.",
    contains="event",
    owner="stream",
    lifetime="an event goes once every group has handled it",
    read=KeyAccess.ADMIN,
)
EVENTS_DEAD = Key(
    "events:<stream>:dead",
    "stream",
    "Events that a group gave up after their last try.",
    contains="the event, with `dead_group`, `dead_id`, `dead_tries` and `dead_reason`",
    owner="stream",
    lifetime="the newest 10,000",
    read=KeyAccess.ADMIN,
)
LEASE = Key(
    "lease:<job>",
    "string",
    "Who runs a job now: the fencing token of its run.",
    contains="a whole number",
    element_regex="<count>",
    owner="job",
    lifetime="30 seconds, renewed while the job runs",
    ttl_seconds=3600,
    read=KeyAccess.ADMIN,
)
FENCE = Key(
    "fence:<job>",
    "string",
    "The last fencing token given out for a job. It only grows: what writes with an older one is refused.",
    contains="a whole number",
    element_regex="<count>",
    owner="job",
    read=KeyAccess.ADMIN,
)
JOB = Key(
    "job:<job>",
    "hash",
    "A timer's job, for operators: when it last ran, how that ended, and when it runs next.",
    owner="job",
    fields=(
        HashField(
            "state", "`running`, `done`, `failed`, `stopped` with its worker, or `lost` if that died", KeyAccess.ADMIN
        ),
        HashField("started_at", "when its last run began, Unix milliseconds", KeyAccess.ADMIN),
        HashField("ended_at", "when that run ended", KeyAccess.ADMIN),
        HashField("duration_ms", "how long it took", KeyAccess.ADMIN),
        HashField("result", "what it said when it was done", KeyAccess.ADMIN),
        HashField("error", "why it failed", KeyAccess.ADMIN),
        HashField("next_at", "when it is due again; 0 makes it due now", KeyAccess.ADMIN),
        HashField("runs", "runs begun so far", KeyAccess.ADMIN),
        HashField("failures", "failures since the last success", KeyAccess.ADMIN),
        HashField("worker", "who ran it last", KeyAccess.ADMIN),
    ),
    read=KeyAccess.ADMIN,
)
LIBRARIES = Key(
    "plaza:libraries",
    "hash",
    "Lua libraries in use, so that those of processes long gone can be removed.",
    contains="library name → when a process last used it, Unix milliseconds",
    element_regex="plaza_[a-z]+_g[0-9]+_[0-9a-f]{8}",
    value_regex="<ms>",
    read=KeyAccess.ADMIN,
)

API_KEYS = Key(
    "api-keys",
    "hash",
    "API keys that operators created: the SHA-256 of each secret, and its name, scopes and expiry.",
    contains="SHA-256 → JSON",
    element_regex="[0-9a-f]{64}",
    read=KeyAccess.NONE,
)
# Not under `auth:`, where a user called `cutoffs` would keep a password.
TOKEN_CUTOFFS = Key(
    "tokens:cutoffs",
    "zset",
    "Names that were deleted, renamed or suspended: tokens issued until then are void.",
    contains="username",
    score="Unix milliseconds up to which tokens are void",
    element_regex="[A-Za-z0-9._-]{1,30}",
    lifetime="a name goes 90 days after its cut-off, when no token from before it is accepted anyway",
    read=KeyAccess.ADMIN,
)
LIMIT_USER = Key(
    "limit:<kind>:user:<subject>",
    "string",
    "How much a user has asked lately: when all of it will be paid off, Unix microseconds.",
    contains="a whole number",
    owner="subject",
    element_regex="<count>",
    lifetime="until that moment",
    ttl_seconds=600,
    read=KeyAccess.ADMIN,
)
LIMIT_ADDRESS = Key(
    "limit:<kind>:address:<subject>",
    "string",
    "The same for an address (of IPv6, for its /64 network).",
    contains="a whole number",
    owner="subject",
    element_regex="<count>",
    lifetime="until that moment",
    ttl_seconds=600,
    read=KeyAccess.ADMIN,
)
IDEMPOTENCY = Key(
    "idempotency:<key>",
    "string",
    "A request with an `Idempotency-Key`: who is running it, or what it answered.",
    lifetime="10 seconds, renewed, while it runs; 24 hours once answered",
    ttl_seconds=86_400,
)
IDEMPOTENCY_DAY = Key(
    "idempotency:<key>:day",
    "string",
    "Tells the runs of one request with an `Idempotency-Key` from what the same key is used for another day.",
    contains="a random token",
    lifetime="24 hours from the first run",
    ttl_seconds=86_400,
)
SNAPSHOT = Key(
    "snapshot:<snapshot>",
    "list",
    "The ids of a list by a moving score, as they stood when someone read its first page.",
    contains="id, best first; at most 1,000",
    lifetime="11 minutes",
    ttl_seconds=660,
    read=KeyAccess.ADMIN,
)

CATALOGUE = Catalogue.from_module(
    "core",
    globals(),
    {
        "library": "[a-z]+",
        "owner": r"[^{}]+",
        "slot": "[0-9a-z]{1,4}",
        "stream": "[a-z_]+",
        "job": "[a-z0-9_.]+",
        "kind": "[a-z]+",
        "subject": "[A-Za-z0-9._-]{1,64}|~[0-9a-f]{32}",
        "key": "[0-9a-f]{32}",
        "snapshot": "[0-9a-f]{32}",
    },
)
