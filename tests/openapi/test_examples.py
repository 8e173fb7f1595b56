"""Every operation has an example that works: it is sent to a running Plaza, and its response is as documented."""

from __future__ import annotations

import re
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any
from urllib.parse import quote

import httpx
import pytest
from jsonschema import Draft202012Validator

from plaza.app import Plaza, running
from plaza.core.http.access import Access
from plaza.core.http.openapi.operations import operation_id
from plaza.core.settings import Settings
from plaza.docgen import openapi_document
from tests.http_servers import client_of
from tests.media.images import picture
from tests.openapi.sample_objects import PREPARATIONS, SampleObjects
from tests.openapi.test_operation_ids import ROUTES
from tests.servers import Server
from tests.webhooks.receiver import receiving

DOCUMENT = openapi_document()
OPERATIONS = {
    operation["operationId"]: (method.upper(), path, operation)
    for path, methods in DOCUMENT["paths"].items()
    for method, operation in methods.items()
}
ACCESS = {operation_id(route): route.access for route in ROUTES}


def validator(schema: dict[str, Any]) -> Draft202012Validator:
    return Draft202012Validator({**schema, "components": DOCUMENT["components"]})


@pytest.mark.parametrize("name", OPERATIONS)
def test_an_operation_has_a_valid_example(name: str) -> None:
    method, path, operation = OPERATIONS[name]
    for parameter in operation.get("parameters", ()):
        if "example" in parameter:
            validator(parameter["schema"]).validate(parameter["example"])
        needed = parameter.get("required", False)
        assert not needed or "example" in parameter, (
            f"{method} {path}: the type of `{parameter['name']}` needs an example: Meta(examples=[…])"
        )
    for content in operation.get("requestBody", {}).get("content", {}).values():
        assert "example" in content, f"{method} {path} needs a body as an example: @route.…(…, example=…)"
        validator(content["schema"]).validate(content["example"])


class ExampleSender:
    """Sends the example of an operation as a caller that it accepts."""

    def __init__(self, plaza: Plaza, http: httpx.AsyncClient, webhook_url: str) -> None:
        self.plaza = plaza
        self.http = http
        self.webhook_url = webhook_url

    async def send(self, name: str) -> None:
        method, path, operation = OPERATIONS[name]
        self.http.cookies.clear()
        samples = SampleObjects(self.plaza, self.http, self.webhook_url)
        await samples.register()
        if name in PREPARATIONS:
            await PREPARATIONS[name](samples)
        query, body, files = {}, {}, {}
        for parameter in operation.get("parameters", ()):
            if "example" in parameter:
                value = await samples.replace(parameter["example"])
                if parameter["in"] == "path":
                    path = path.replace(f"{{{parameter['name']}}}", quote(str(value), safe=""))
                elif parameter["in"] == "query":
                    query[parameter["name"]] = value
        for media_type, content in operation.get("requestBody", {}).get("content", {}).items():
            example = await samples.replace(content["example"])
            if media_type == "multipart/form-data":
                example.pop("file")
                body, files = {"data": example}, {"file": ("a.png", picture())}
            else:
                body = {"json": example}
        headers = self._credentials(ACCESS[name], samples)
        request = self.http.build_request(method, path, params=query, headers=headers, files=files, **body)
        response = await self.http.send(request, stream=True)
        try:
            await self._check(response, operation)
        finally:
            await response.aclose()

    def _credentials(self, access: Access, samples: SampleObjects) -> dict[str, str]:
        if access.is_open:
            return {}
        return samples.key if access in (Access.ADMIN, Access.API_KEY, Access.EVENTS) else samples.token

    async def _check(self, response: httpx.Response, operation: dict[str, Any]) -> None:
        """Check that the response is successful and is described."""
        if not response.is_success:
            raise AssertionError(
                f"{response.request.method} {response.request.url}: {(await response.aread()).decode()}\n"
                "If the example names an object, tests/openapi/sample_objects.py creates it."
            )
        described = operation["responses"].get(str(response.status_code))
        assert described, f"{response.status_code} is not documented"
        media_type = response.headers.get("content-type", "")
        assert ([media_type] if media_type else []) == list(described.get("content", {})), media_type
        if media_type == "application/json":
            await response.aread()
            validator(described["content"][media_type]["schema"]).validate(response.json())
            assert not re.search(r'"status": ?"error"', response.text), response.text  # a record of a batch was refused


@pytest.fixture
async def sender(server: Server, tmp_path: Path) -> AsyncIterator[ExampleSender]:
    settings = Settings(data_dir=tmp_path, valkey_url=server.url, rate_limits=False, webhooks_private=True)
    async with running(settings) as plaza, client_of(plaza.app) as http, receiving() as receiver:
        yield ExampleSender(plaza, http, receiver.url)


async def test_every_example_works(sender: ExampleSender) -> None:
    failures = []
    for name in OPERATIONS:
        try:
            await sender.send(name)
        except Exception as error:
            failures.append(f"{name}: {str(error)[:1000]}")
    assert not failures, "\n\n".join(failures)
