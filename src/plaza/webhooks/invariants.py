"""The invariants of webhooks that `keys.py` cannot express."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from plaza.core.invariants import Command, Entry, Invariant, Invariants
from plaza.webhooks.keys import WEBHOOK, WEBHOOK_FAILING, WEBHOOK_QUEUE, WEBHOOKS


def _read_index(entry: Entry) -> Sequence[Command]:
    return (("HGET", WEBHOOKS(), entry.parts[0]),)


def _check_index(entry: Entry, replies: Sequence[Any], now: int) -> str | None:
    revision = entry.value.get("revision")
    return None if replies[0] == revision else f"has revision {revision}, but `{WEBHOOKS()}` has {replies[0]}"


def _read_queue(entry: Entry) -> Sequence[Command]:
    return (("XRANGE", WEBHOOK_QUEUE(entry.parts[0]), entry.member, entry.member),)


def _check_queue(entry: Entry, replies: Sequence[Any], now: int) -> str | None:
    return None if replies[0] else f"has {entry.member}, which is not in the queue"


INVARIANTS = Invariants(
    [
        Invariant("index", WEBHOOK, _read_index, _check_index, per_key=True),
        Invariant("queued", WEBHOOK_FAILING, _read_queue, _check_queue),
    ],
    {"webhook": WEBHOOK},
)
