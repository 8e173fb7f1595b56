"""The AsyncAPI 3 document: every event type, and the streams, SSE route and webhooks that carry it.

It comes from the types that domains declare (`events.py`), so it cannot differ from what is emitted.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from inspect import getdoc
from typing import Any, Final

import msgspec

from plaza.core.events import EventData

_SCHEMAS: Final = "#/components/schemas/"

EventTypes = Mapping[str, Sequence[type[EventData]]]  # by the domain that emits them


def describe_events(types: EventTypes, version: str) -> dict[str, Any]:
    """Return the AsyncAPI document of event types."""
    kinds = [kind for group in types.values() for kind in group]
    schemas, components = msgspec.json.schema_components(kinds, ref_template=_SCHEMAS + "{name}")
    messages = {kind.type: _message(kind, schema) for kind, schema in zip(kinds, schemas, strict=True)}
    return {
        "asyncapi": "3.0.0",
        "info": {
            "title": "Plaza events",
            "version": version,
            "description": "What happens in Plaza, in Valkey streams with consumer groups, over SSE and by webhooks.",
        },
        "defaultContentType": "application/cloudevents+json",
        "channels": {domain: _channel(domain, group) for domain, group in types.items()},
        "operations": {
            f"read_{domain}": {
                "action": "send",
                "summary": f"Read the events of {domain}.",
                "channel": {"$ref": f"#/channels/{domain}"},
            }
            for domain in types
        },
        "components": {"messages": messages, "schemas": components},
    }


def summary_of(kind: type[EventData]) -> str:
    """Return what an event type means: the docstring of its class, on one line."""
    return " ".join((getdoc(kind) or "").split())


def _channel(domain: str, kinds: Sequence[type[EventData]]) -> dict[str, Any]:
    return {
        "address": f"events:{domain}",
        "description": f"The stream of {domain}. On a cluster it has 16 shards, `events:{{<shard>}}:{domain}`.",
        "messages": {kind.type: {"$ref": f"#/components/messages/{kind.type}"} for kind in kinds},
    }


def _message(kind: type[EventData], data: dict[str, Any]) -> dict[str, Any]:
    """Return the message of a type: a CloudEvent with its data."""
    text = {"type": "string"}
    return {
        "name": kind.type,
        "title": kind.type,
        "summary": summary_of(kind),
        "payload": {
            "type": "object",
            "required": ["id", "source", "specversion", "type", "subject", "time", "data"],
            "properties": {
                "id": {**text, "description": "No two events have the same id. An event sent twice keeps its id."},
                "source": {**text, "format": "uri-reference"},
                "specversion": {**text, "const": "1.0"},
                "type": {**text, "const": kind.type},
                "subject": {**text, "description": f"The `{kind.subject}`. Events of one subject are in order."},
                "time": {**text, "format": "date-time"},
                "origin": {**text, "description": "`import` if another system or the demo brought it in."},
                "data": data,
            },
        },
    }
