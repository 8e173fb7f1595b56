"""The AsyncAPI document is valid and has every event type; docs/events.md is checked by tests/test_docs.py."""

from __future__ import annotations

import json
from pathlib import Path

import jsonschema
import msgspec

from plaza.app import event_types
from plaza.core.asyncapi import describe_events
from tests.http_servers import all_of_plaza, client_of
from tests.servers import Server

SCHEMA = Path(__file__).parent / "node_modules" / "@asyncapi" / "specs" / "schemas" / "3.0.0.json"


def test_the_document_follows_the_official_schema() -> None:
    document = json.loads(msgspec.json.encode(describe_events(event_types(), "1.0")))
    jsonschema.Draft7Validator(json.loads(SCHEMA.read_text())).validate(document)
    types = {kind.type for kinds in event_types().values() for kind in kinds}
    assert document["components"]["messages"].keys() == types
    for channel in document["channels"].values():
        for message in channel["messages"].values():
            assert message["$ref"].removeprefix("#/components/messages/") in types


async def test_the_document_is_served(server: Server, tmp_path: Path) -> None:
    async with all_of_plaza(server, tmp_path) as plaza, client_of(plaza.app) as client:
        response = await client.get("/asyncapi.json")
    assert response.status_code == 200
    assert response.json()["asyncapi"] == "3.0.0"


def test_every_type_and_field_has_a_description() -> None:
    schemas = describe_events(event_types(), "1.0")["components"]
    assert all(message["summary"] for message in schemas["messages"].values())
    for name, schema in schemas["schemas"].items():
        for field, described in schema.get("properties", {}).items():
            assert "description" in described or "anyOf" in described, f"{name}.{field} has no description"
