"""The keys of webhooks. All are Plaza's own. An endpoint's keys share its slot, so each change of it is atomic.

What waits in a queue is deleted after a week at the latest, and records of deliveries name no user.
"""

from __future__ import annotations

from plaza.core.keyspace import Catalogue, Formula, HashField, Key, KeyAccess, Reference, RequiresKey, SameMembers

# The secret and the URL, which may contain one too, are for Plaza only; so is what is beside them, since ACLs select
# keys by a prefix.
_HIDDEN = KeyAccess.NONE
_REPAIR = "webhook <webhook>"
_REQUIRES_WEBHOOK = RequiresKey("webhook:<webhook>", repair=_REPAIR)

WEBHOOKS = Key(
    "webhooks",
    "hash",
    "All endpoints. An endpoint's revision grows with each change, so that workers notice it.",
    contains="webhook id → revision",
    element_regex="<webhook>",
    value_regex="<count>",
    invariants=(Reference("webhook:<webhook>", repair=_REPAIR),),
    read=KeyAccess.ADMIN,
)
WEBHOOK = Key(
    "webhook:<webhook>",
    "hash",
    "An endpoint that receives events.",
    owner="webhook",
    fields=(
        HashField("url", "where events are sent", _HIDDEN, required=True),
        HashField("types", "patterns of event types, separated by spaces", _HIDDEN, required=True),
        HashField("description", "an operator's note", _HIDDEN),
        HashField("include_imports", "`1` if imported events are sent too", _HIDDEN, value_regex="[01]"),
        HashField("secret", "signs requests; encrypted", _HIDDEN, required=True),
        HashField("previous_secret", "signs requests too, until `previous_until`; encrypted", _HIDDEN),
        HashField("previous_until", "Unix milliseconds", _HIDDEN, value_regex="<ms>"),
        HashField("rotation", "the form that replaced the secret, to detect a repetition", _HIDDEN),
        HashField("created_at", "Unix milliseconds", _HIDDEN, value_regex="<ms>", required=True),
        HashField("created_by", "the admin's username, or `@api`, `@cli`", _HIDDEN),
        HashField("request", "SHA-256 of the request that created it, to detect a repetition", _HIDDEN),
        HashField("since", "older events are not sent, Unix milliseconds", _HIDDEN, value_regex="<ms>"),
        HashField("disabled_at", "Unix milliseconds; missing while it is enabled", _HIDDEN, value_regex="<ms>"),
        HashField("disabled_reason", "why, for operators", _HIDDEN),
        HashField("revision", "grows with each change", _HIDDEN, value_regex="<count>", required=True),
    ),
    invariants=(Formula("its `revision` is in `webhooks`"),),
    repair=_REPAIR,
    read=_HIDDEN,
)
WEBHOOK_STATE = Key(
    "webhook:<webhook>:state",
    "hash",
    "How the deliveries to an endpoint are going.",
    owner="webhook",
    fields=(
        HashField("delivered", "events delivered so far", _HIDDEN, value_regex="<count>"),
        HashField("dropped", "events that a full queue lost", _HIDDEN, value_regex="<count>"),
        HashField("failures", "failed requests since the last success", _HIDDEN, value_regex="<count>"),
        HashField("failing_since", "the first of them, Unix milliseconds", _HIDDEN, value_regex="<ms>"),
        HashField("next_at", "when an endpoint that is down is tried again", _HIDDEN, value_regex="<ms>"),
        HashField("last_delivered_at", "Unix milliseconds", _HIDDEN, value_regex="<ms>"),
        HashField("last_error", "what went wrong last, until the next success", _HIDDEN),
    ),
    invariants=(_REQUIRES_WEBHOOK,),
    repair=_REPAIR,
    read=_HIDDEN,
)
WEBHOOK_QUEUE = Key(
    "webhook:<webhook>:queue",
    "stream",
    "Events that wait for an endpoint, oldest first. An entry's id is the id of the delivery.",
    contains="`event` (its id), `type`, `subject`, `body`, `stream` and `entry` (where it comes from)",
    owner="webhook",
    invariants=(_REQUIRES_WEBHOOK,),
    lifetime="an event is removed when it is delivered, or after a week; at most 100,000",
    read=_HIDDEN,
)
WEBHOOK_POSITIONS = Key(
    "webhook:<webhook>:positions",
    "hash",
    "The last event of each stream that was considered for an endpoint, so that none is queued twice.",
    contains="name of a stream → id of an entry",
    owner="webhook",
    element_regex="events:.+",
    value_regex="<delivery>",
    invariants=(_REQUIRES_WEBHOOK,),
    read=_HIDDEN,
)
READ_POSITIONS = Key(
    "webhooks:positions",
    "hash",
    "How far the worker has read each stream of events for all endpoints.",
    contains="name of a stream → id of the last entry read",
    element_regex="events:.+",
    value_regex="<delivery>",
    read=KeyAccess.ADMIN,
)
WEBHOOK_DELIVERIES = Key(
    "webhook:<webhook>:deliveries",
    "hash",
    "The deliveries that were attempted: the last 10,000 of a week, and all that will be retried.",
    contains="delivery id → JSON: event, type, status, attempts, response code, error, times",
    owner="webhook",
    element_regex="<delivery>",
    invariants=(_REQUIRES_WEBHOOK,),
    repair=_REPAIR,
    lifetime="a week",
    read=_HIDDEN,
)
WEBHOOK_ATTEMPTS = Key(
    "webhook:<webhook>:attempts",
    "zset",
    "The same deliveries by their last attempt.",
    contains="delivery id",
    score="last attempt, Unix milliseconds",
    owner="webhook",
    element_regex="<delivery>",
    invariants=(_REQUIRES_WEBHOOK, SameMembers("webhook:<webhook>:deliveries")),
    repair=_REPAIR,
    lifetime="a week",
    read=_HIDDEN,
)
WEBHOOK_FAILING = Key(
    "webhook:<webhook>:failing",
    "zset",
    "Deliveries that failed and will be retried. They are still in the queue.",
    contains="delivery id",
    score="next attempt, Unix milliseconds; 0: now",
    owner="webhook",
    element_regex="<delivery>",
    invariants=(_REQUIRES_WEBHOOK, Formula("each member is in `webhook:<webhook>:queue`")),
    repair=_REPAIR,
    lifetime="until it is delivered",
    read=_HIDDEN,
)

CATALOGUE = Catalogue.from_module(
    "webhooks", globals(), {"webhook": "[0-9a-f]{16}", "delivery": "[0-9]{1,16}-[0-9]{1,16}"}
)
