"""Reads Plaza's events with a consumer group: it can be stopped at any time, and goes on where it was.

    python examples/events/consumer.py redis://localhost:6379 social my-service

It needs only redis-py. Several of these processes with the same group share the events.
"""

from __future__ import annotations

import json
import os
import socket
import sys
from collections.abc import Iterator
from typing import Any

import redis

CLAIM_AFTER_MS = 60_000  # a consumer that is silent for a minute has died


def create_group(client: redis.Redis, stream: str, group: str) -> None:
    """Create the group at the start of the stream, unless it exists."""
    try:
        client.xgroup_create(stream, group, id="0", mkstream=True)
    except redis.ResponseError as error:
        if "BUSYGROUP" not in str(error):
            raise


def read_events(client: Any, stream: str, group: str, consumer: str) -> Iterator[tuple[str, dict[str, str]]]:
    """Yield entries: first those that a dead consumer has not acknowledged, then new ones as they come."""
    while True:
        claimed = client.xautoclaim(stream, group, consumer, CLAIM_AFTER_MS, "0-0", count=100)[1]
        yield from claimed
        for _, entries in client.xreadgroup(group, consumer, {stream: ">"}, count=100, block=5_000) or []:
            yield from entries


def main(url: str, domain: str, group: str) -> None:
    client = redis.Redis.from_url(url, decode_responses=True)
    stream, consumer = f"events:{domain}", f"{socket.gethostname()}-{os.getpid()}"
    create_group(client, stream, group)
    for entry, fields in read_events(client, stream, group, consumer):
        # Do your work here. It may run twice for one event, so make it repeatable.
        print(fields["type"], fields["subject"], json.loads(fields["data"]), flush=True)
        client.xack(stream, group, entry)  # only now: an event that was not handled is delivered again


if __name__ == "__main__":
    main(*sys.argv[1:4])
