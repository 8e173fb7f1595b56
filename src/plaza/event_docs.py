"""Writes docs/events.md: how to receive events, and every type with its data."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import msgspec

from plaza.core.asyncapi import EventTypes, summary_of
from plaza.core.events import EventData

GUIDE = """\
Everything that happens in Plaza is an event: a post was created, an order was placed. A command writes its event in
the same atomic step as its data, so no event is lost and none announces what did not happen. Bookmarks, blocks,
mutes and carts are private and have no events. An event has ids and usernames, never texts or private fields: read
what you need through the API or the documented keys.

## Ways to receive events

| way | for | how |
|---|---|---|
| streams | services with a Valkey or Redis client | consumer groups on `events:<domain>`; see below |
| SSE | dashboards, scripts | `GET /events?types=post.*,order.placed`, as admin or with an API key of scope `events` |
| webhooks | services elsewhere | [signed HTTP requests](webhooks.md) with retries |
| command line | operators | `plaza events tail --types 'post.*'` |

`GET /asyncapi.json` has the same list for programs (AsyncAPI 3). A stream of SSE ends every five minutes, so that a
revoked key or a lost role ends it too. Clients reconnect by themselves with `Last-Event-ID` and miss nothing: the
stream sends an id also when there was no event.

## What you can rely on

- **At least once.** After a crash an event can arrive twice, with the same `id`. An `id` is never used for two
  events.
- **In order per subject.** All events of one subject are in one stream, in the order in which they happened.
- **Complete.** Replaying a stream from the start gives the source data, as long as nothing is trimmed.
- **Trimmed** by age and length (`PLAZA_EVENTS_DAYS`, `PLAZA_EVENTS_MAX`). A consumer that falls behind should read
  the source data again.
- **Names of deleted and renamed users** stay in the streams until they are trimmed: for `PLAZA_EVENTS_DAYS` (7 days),
  to the minute. What was already announced is not changed, so that a consumer that is behind understands the events
  that follow. Events that wait for a webhook go after a week, dead events after the same days. A consumer that stores
  names should delete or rename them when it gets `user.deleted` or `user.renamed`.
- **What other services write** to the documented keys has no event. A write to a profile through the [proxy](proxy.md)
  has one, but after the write and not in the same step: if the process dies in between, the event is lost. It comes
  also if the value stays the same. `PATCH /users/{username}` emits `user.updated` with the change.
- `origin` is `import` for what sync, an import or the demo brought in, and `rename` for follows, likes and votes
  that move to a new username. Skip them if you only want what users did now.

## Read the streams

An entry has the fields `type`, `subject`, `time` (Unix milliseconds), `data` (JSON), and sometimes `id` and
`origin`. Without `id`, the event's id is `<domain>-<entry id>`. On a cluster a domain has 16 streams,
`events:{0}:<domain>` to `events:{15}:<domain>`.

A consumer group remembers what it has handled, so it can restart at any time. In Python with redis-py
(`examples/events/consumer.py`):

```python
client.xgroup_create("events:social", "my-service", id="0", mkstream=True)
while True:
    for _, entries in client.xreadgroup("my-service", "worker-1", {"events:social": ">"}, count=100, block=5_000):
        for entry, fields in entries:
            handle(fields["type"], json.loads(fields["data"]))
            client.xack("events:social", "my-service", entry)
```

In Node with node-redis (`examples/events/consumer.mjs`):

```js
await client.xGroupCreate("events:social", "my-service", "0", { MKSTREAM: true });
for (;;) {
  const stream = { key: "events:social", id: ">" };
  const reply = await client.xReadGroup("my-service", "worker-1", stream, { COUNT: 100, BLOCK: 5000 });
  for (const { id, message } of reply?.[0].messages ?? []) {
    handle(message.type, JSON.parse(message.data));
    await client.xAck("events:social", "my-service", id);
  }
}
```

The examples also handle what a dead consumer left behind (`XAUTOCLAIM`).

## What events cost

CPU of the service and Valkey together, without HTTP, with events against without (`python -m bench events`): a like
1.08 times, a vote 1.11, a follow 1.14, a heartbeat 1.08. One consumer process handles about 30,000 events a second.
On a cluster of three nodes the stream is on another node than the data, and the event goes there in a call of its own:
a like 1.23 times, a vote 1.47, a follow 1.53, a heartbeat 1.03, all four together 1.32.
"""


def page(types: EventTypes, generated: str) -> str:
    """Return the text of docs/events.md."""
    return "\n".join(["# Events\n", generated, GUIDE, "## Types\n", *_sections(types)])


def _sections(types: EventTypes) -> Iterator[str]:
    for domain, kinds in types.items():
        yield f"### {domain}\n"
        yield "| type | subject | data | meaning |"
        yield "|---|---|---|---|"
        for kind in kinds:
            yield f"| `{kind.type}` | `{kind.subject}` | {_fields(kind)} | {summary_of(kind)} |"
        yield ""


def _fields(kind: type[EventData]) -> str:
    schema: dict[str, Any] = msgspec.json.schema_components([kind])[1][kind.__name__]
    required = schema.get("required", [])
    return ", ".join(f"`{name}`" + ("" if name in required else " (optional)") for name in schema["properties"])
