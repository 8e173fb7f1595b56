"""The keys of `core`. Each domain has such a module."""

from __future__ import annotations

from plaza.core.keyspace import Catalogue, Formula, HashField, Key, KeyAccess

PENDING = Key(
    "pending:<library>:<owner>",
    "hash",
    "On a cluster: the outbox entries of an owner, for operations that are not settled yet.",
    contains="operation → its outbox entry; subject of a projection → the latest operation on it",
    invariants=(Formula("no operation is older than a minute"),),
    owner="owner",
    lifetime="until all operations are settled",
    read=KeyAccess.NONE,  # an owner can be a session's token
)
PENDING_SLOT = Key(
    "pending:<slot>",
    "set",
    "On a cluster: the owners of one slot with outbox entries, so that workers find them.",
    contains="name of a `pending:<library>:<owner>` key",
    element_regex="pending:.+",
    owner="slot",
    lifetime="until all operations are settled",
    read=KeyAccess.NONE,  # an owner can be a session's token
)
EVENTS = Key(
    "events:<stream>",
    "stream",
    "On one server: the events of a domain, in the order in which they happened.",
    contains="event: `type`, `subject`, `time`, `data` (JSON), and `origin` and `id` if it has them",
    lifetime="`PLAZA_EVENTS_DAYS`, at most `PLAZA_EVENTS_MAX` events",
    read=KeyAccess.ADMIN,
)
EVENTS_DEAD = Key(
    "events:<stream>:dead",
    "stream",
    "On one server: events that failed too often, with the reason.",
    contains="the event, with `dead_group`, `dead_id`, `dead_tries` and `dead_reason`",
    lifetime="`PLAZA_EVENTS_DAYS`, at most the newest 10,000",
    read=KeyAccess.ADMIN,
)
EVENTS_SHARD = Key(
    "events:<shard>:<stream>",
    "stream",
    "On a cluster: a sixteenth of the events of a domain. The events of one owner are in one shard, in order.",
    contains="event, as in `events:<stream>`; its `id` is always given",
    owner="shard",
    lifetime="as `events:<stream>`",
    read=KeyAccess.ADMIN,
)
EVENTS_SHARD_DEAD = Key(
    "events:<shard>:<stream>:dead",
    "stream",
    "On a cluster: events of a shard that failed too often, with the reason.",
    contains="as `events:<stream>:dead`",
    owner="shard",
    lifetime="as `events:<stream>:dead`",
    read=KeyAccess.ADMIN,
)
EVENTS_BEHIND = Key(
    "events:<stream>:behind",
    "hash",
    "On one server: the consumer groups that lost events, because those were trimmed before they had handled them.",
    contains="group → when, Unix milliseconds",
    value_regex="<ms>",
    lifetime="until the group is rebuilt",
    read=KeyAccess.ADMIN,
)
EVENTS_SHARD_BEHIND = Key(
    "events:<shard>:<stream>:behind",
    "hash",
    "On a cluster: the consumer groups that lost events of a shard.",
    contains="as `events:<stream>:behind`",
    value_regex="<ms>",
    owner="shard",
    lifetime="until the group is rebuilt",
    read=KeyAccess.ADMIN,
)
EVENTS_RELAYED = Key(
    "events:<stream>:relayed",
    "zset",
    "On one server: the events of SQL rows that were appended in the last minute, so that none is appended twice.",
    contains="id of the event",
    score="when, Unix milliseconds",
    lifetime="a minute after the last event",
    ttl_seconds=60,
    read=KeyAccess.ADMIN,
)
EVENTS_SHARD_RELAYED = Key(
    "events:<shard>:<stream>:relayed",
    "zset",
    "On a cluster: the same for a shard.",
    contains="id of the event",
    score="when, Unix milliseconds",
    owner="shard",
    lifetime="a minute after the last event",
    ttl_seconds=60,
    read=KeyAccess.ADMIN,
)
UNPUBLISHED = Key(
    "unpublished:<library>:<owner>",
    "list",
    "On a cluster: the events of an owner that are not in their shard yet, oldest first.",
    contains="JSON: epoch, number, `type`, `subject`, `time`, `data`, `origin`",
    owner="owner",
    lifetime="until they are published, as the outbox entries beside them",
    read=KeyAccess.NONE,
)
PUBLISHED = Key(
    "published:<shard>:<library>:<digest>",
    "hash",
    "On a cluster: the last event of an owner that was appended to the shard, so that none is appended twice.",
    contains="epoch → number; `<digest>` is the SHA-1 of the owner",
    element_regex="[0-9a-f]+-[0-9]+",
    value_regex="<count>",
    owner="shard",
    lifetime="a minute after the last event",
    ttl_seconds=60,
    read=KeyAccess.NONE,
)
LEASE = Key(
    "lease:<job>",
    "string",
    "The lease of a job that runs now: the fencing token of the run.",
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
    "The latest fencing token of a job. It only grows: writes with an older one are rejected.",
    contains="a whole number",
    element_regex="<count>",
    owner="job",
    read=KeyAccess.ADMIN,
)
JOB = Key(
    "job:<job>",
    "hash",
    "The state of a job, for operators: its last run, the result, and when it runs next.",
    owner="job",
    fields=(
        HashField(
            "state",
            "`running`, `done`, `failed`, `stopped` with its worker, or `lost` if the worker died",
            KeyAccess.ADMIN,
        ),
        HashField("started_at", "when the last run started, Unix milliseconds", KeyAccess.ADMIN),
        HashField("ended_at", "when the last run ended, Unix milliseconds", KeyAccess.ADMIN),
        HashField("duration_ms", "the duration of the last run", KeyAccess.ADMIN),
        HashField("result", "the text that the job returned", KeyAccess.ADMIN),
        HashField("error", "the error of the last run", KeyAccess.ADMIN),
        HashField("next_at", "when the job is due, Unix milliseconds; 0 makes it due now", KeyAccess.ADMIN),
        HashField("runs", "the number of runs so far", KeyAccess.ADMIN),
        HashField("failures", "failures since the last success", KeyAccess.ADMIN),
        HashField("worker", "the worker of the last run", KeyAccess.ADMIN),
    ),
    read=KeyAccess.ADMIN,
)
REPLICATED = Key(
    "replicated:<slot>",
    "string",
    "With `PLAZA_WAIT_REPLICAS`: the write before each `WAIT` for replicas.",
    contains="nothing",
    owner="slot",
    lifetime="a second",
    ttl_seconds=60,
    read=KeyAccess.NONE,
)
LIBRARIES = Key(
    "plaza:libraries",
    "hash",
    "Lua libraries in use, so that unused ones can be removed.",
    contains="library name → when a process last used it, Unix milliseconds",
    element_regex="plaza_[a-z]+_g[0-9]+_[0-9a-f]{8}",
    value_regex="<ms>",
    read=KeyAccess.ADMIN,
)
RESTORING = Key(
    "plaza:restoring",
    "string",
    "A restore that has not ended: until it does, or is repeated, no server starts on these keys.",
    contains="id of the backup",
    lifetime="while the restore runs",
    read=KeyAccess.ADMIN,
)

CLOCKS = Key(
    "plaza:clocks",
    "hash",
    "The times that the clocks last showed, so that a worker notices if one was set back.",
    contains="`service`, `valkey <number>`, or `latest` for the latest of all → Unix milliseconds",
    element_regex="service|latest|valkey [0-9]+",
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
API_KEY_USES = Key(
    "api-keys:used",
    "hash",
    "When API keys were last used, to the hour.",
    contains="SHA-256 of the secret → Unix milliseconds",
    element_regex="[0-9a-f]{64}",
    read=KeyAccess.NONE,
)
# Not under `auth:`, where it would be the key of a user called `cutoffs`.
TOKEN_CUTOFFS = Key(
    "tokens:cutoffs",
    "zset",
    "Revocations: older tokens and sessions of these users are void (deleted, renamed, suspended). "
    "`<username>@tokens`: access tokens only (role or password changed, all sessions ended).",
    contains="username, or `<username>@tokens`",
    score="Unix milliseconds up to which tokens are void",
    element_regex="[A-Za-z0-9._-]{1,30}(@tokens)?",
    lifetime="an entry is removed after 90 days, when all older tokens have expired",
    read=KeyAccess.ADMIN,
)
ENDED_SESSIONS = Key(
    "tokens:ended_sessions",
    "zset",
    "API sessions that have ended: their access tokens are void.",
    contains="id of the session",
    score="Unix milliseconds up to which its tokens are void",
    element_regex="[0-9a-f]{32}",
    lifetime="an entry is removed when its last access token has expired, within an hour or two",
    read=KeyAccess.ADMIN,
)
LIMIT_USER = Key(
    "limit:<kind>:user:<subject>",
    "string",
    "The rate limit of a user: when its quota is full again, Unix microseconds.",
    contains="a whole number",
    owner="subject",
    element_regex="<count>",
    lifetime="until that time",
    ttl_seconds=600,
    read=KeyAccess.ADMIN,
)
LIMIT_ADDRESS = Key(
    "limit:<kind>:address:<subject>",
    "string",
    "The same for an IP address (for IPv6, its /64 network).",
    contains="a whole number",
    owner="subject",
    element_regex="<count>",
    lifetime="until that time",
    ttl_seconds=600,
    read=KeyAccess.ADMIN,
)
IDEMPOTENCY = Key(
    "idempotency:<key>",
    "string",
    "A request with an `Idempotency-Key`: its claim while it runs, then its response.",
    lifetime="10 seconds, renewed, while it runs; then 24 hours",
    ttl_seconds=86_400,
)
IDEMPOTENCY_DAY = Key(
    "idempotency:<key>:day",
    "string",
    "Distinguishes the runs of a request with an `Idempotency-Key` from later uses of the same key.",
    contains="the day of the first run, UTC",
    lifetime="24 hours from the first run",
    ttl_seconds=86_400,
)
SNAPSHOT = Key(
    "snapshot:<snapshot>",
    "list",
    "The ids of a list by a changing score, as of its second page, without those of the first.",
    contains="id, best first; at most 1,000",
    lifetime="11 minutes",
    ttl_seconds=660,
    read=KeyAccess.ADMIN,
)
_HEALTH = (
    "`<bucket>:<figure>` → a number; a bucket is its start in Unix seconds; figures are `n` requests, `f` 5xx "
    "responses, `t` round trips, and `l0`, `l1`, … responses by their time"
)
HEALTH_SECONDS = Key(
    "health:10s:<period>",
    "hash",
    "What all processes counted in an hour, in buckets of ten seconds.",
    contains=_HEALTH,
    lifetime="two hours",
    ttl_seconds=7_200,
    element_regex=r"[0-9]+:[a-z][0-9]*",
    value_regex="[0-9]+",
    read=KeyAccess.ADMIN,
)
HEALTH_MINUTES = Key(
    "health:5min:<period>",
    "hash",
    "What all processes counted on a day, in buckets of five minutes.",
    contains=_HEALTH,
    lifetime="eight days after the day",
    ttl_seconds=8 * 86_400,
    element_regex=r"[0-9]+:[a-z][0-9]*",
    value_regex="[0-9]+",
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
        "shard": "[0-9]{1,2}",
        "digest": "[0-9a-f]{40}",
        "job": "[a-z0-9_.]+",
        "kind": "[a-z]+",
        "subject": "[A-Za-z0-9._-]{1,64}|~[0-9a-f]{32}",
        "key": "[0-9a-f]{32}",
        "snapshot": "[0-9a-f]{32}",
        "period": "[0-9]+",
    },
)
