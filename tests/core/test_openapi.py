"""The OpenAPI document: valid, complete, and true to what the routes do."""

from __future__ import annotations

from collections.abc import AsyncIterator
from typing import Any

import httpx
import msgspec
import pytest
from jsonschema import Draft202012Validator
from openapi_spec_validator import OpenAPIV31SpecValidator

from plaza.core.auth import Actor
from plaza.core.errors import PlazaError
from plaza.core.http.access import PUBLIC
from plaza.core.http.app import make_app
from plaza.core.http.responses import EVENTS, Response, ServerSentEvent
from plaza.core.http.routes import Routes
from tests.core import sample_domain
from tests.core.sample_domain import AUTH, SETTINGS, Shelf, Thing, Things, token
from tests.http_servers import client_of

extra = Routes("extra", prefix="/extra", about="More kinds of answers.")


@extra.get("/ticks", access=PUBLIC, media_type=EVENTS)
async def ticks() -> AsyncIterator[ServerSentEvent[Thing]]:
    """Things, as they come."""
    yield ServerSentEvent(data=Thing(1, "Lamp", "ana"))


@extra.post("/jobs", access=PUBLIC, other_responses={202: Thing, 204: None})
async def start(actor: Actor | None, body: dict[str, int]) -> Response[Things]:
    return Response(None, status=204)


@extra.get("/hidden", access=PUBLIC, in_openapi=False)
async def hidden() -> None:
    """Not in the document."""


class Span(msgspec.Struct, rename="camel"):
    first_day: int
    last_day: int = 7


@pytest.fixture
async def client() -> AsyncIterator[httpx.AsyncClient]:
    app = make_app([sample_domain.route, extra], {Shelf: Shelf()}, auth=AUTH, settings=SETTINGS)
    async with client_of(app) as client:
        yield client


@pytest.fixture
async def document(client: httpx.AsyncClient) -> dict[str, Any]:
    answer = await client.get("/openapi.json")
    assert answer.headers["content-type"] == "application/json"
    found: dict[str, Any] = answer.json()
    return found


def operation(document: dict[str, Any], method: str, path: str) -> dict[str, Any]:
    found: dict[str, Any] = document["paths"][path][method]
    return found


def test_the_document_is_valid_openapi_3_1(document: dict[str, Any]) -> None:
    assert document["openapi"] == "3.1.0"
    assert list(OpenAPIV31SpecValidator(document).iter_errors()) == []


def test_every_listed_route_is_in_it_and_no_other(document: dict[str, Any]) -> None:
    described = {(method.upper(), path) for path, methods in document["paths"].items() for method in methods}
    declared = {(route.method, route.template) for group in (sample_domain.route, extra) for route in group.routes}
    assert declared - described == {("GET", "/extra/hidden")}
    assert {path for _, path in described - declared} == {"/openapi.json", "/asyncapi.json", "/metrics"}


def test_operations_have_unique_ids_and_summaries(document: dict[str, Any]) -> None:
    create = operation(document, "post", "/things")
    assert (create["operationId"], create["tags"]) == ("createThing", ["things"])
    assert (create["summary"], create["description"]) == ("Put a thing on the shelf.", "It gets the next number.")
    names = [op["operationId"] for methods in document["paths"].values() for op in methods.values()]
    assert len(names) == len(set(names))
    assert {"name": "things", "description": "Things on a shelf."} in document["tags"]


def test_parameters_have_their_place_type_bounds_and_default(document: dict[str, Any]) -> None:
    found = {p["name"]: p for p in operation(document, "get", "/things")["parameters"]}
    assert found.keys() == {"limit", "cursor", "offset", "colour", "tag", "from", "perShelf", "includeUser"}
    assert found["limit"] == {
        "name": "limit",
        "in": "query",
        "required": False,
        "description": "The maximum number of items.",
        "schema": {
            "type": "integer",
            "minimum": 1,
            "maximum": 100,
            "default": 20,
            "description": "The maximum number of items.",
        },
    }
    assert found["cursor"]["description"] == "`next_cursor` of the previous page."
    assert found["perShelf"]["schema"]["maximum"] == 9
    assert found["colour"]["schema"] == {"type": "string", "enum": ["blue", "red"]}, "a parameter is never null"
    [thing] = operation(document, "get", "/things/{thing}")["parameters"]
    assert (thing["in"], thing["required"], thing["description"], thing["example"]) == ("path", True, "A thing.", 7)
    keyed = operation(document, "post", "/things")["parameters"]
    assert [(p["name"], p["in"]) for p in keyed] == [("Idempotency-Key", "header")]


def test_bodies_and_responses_refer_to_the_types(document: dict[str, Any]) -> None:
    create = operation(document, "post", "/things")
    assert create["requestBody"]["required"] is True
    body = create["requestBody"]["content"]["application/json"]["schema"]
    assert body == {"$ref": "#/components/schemas/NewThing"}
    assert create["requestBody"]["content"]["application/json"]["example"] == {"title": "Desk lamp"}
    schema = document["components"]["schemas"]["NewThing"]
    assert schema["description"] == "Body to create a thing."
    assert schema["additionalProperties"] is False
    assert schema["properties"]["title"]["maxLength"] == 20
    assert operation(document, "patch", "/things/{thing}")["requestBody"]["required"] is False
    made = create["responses"]["201"]
    assert made["content"]["application/json"]["schema"] == {"$ref": "#/components/schemas/Thing"}
    assert "content" not in operation(document, "delete", "/things/{thing}")["responses"]["204"]
    streamed = operation(document, "get", "/extra/ticks")["responses"]["200"]["content"]["text/event-stream"]
    assert streamed["schema"]["contentSchema"] == {"$ref": "#/components/schemas/Thing"}
    job = operation(document, "post", "/extra/jobs")["responses"]
    assert job["202"]["content"]["application/json"]["schema"] == {"$ref": "#/components/schemas/Thing"}
    assert "content" not in job["204"]


def test_security_and_expected_errors_follow_from_the_declaration(document: dict[str, Any]) -> None:
    create, read = operation(document, "post", "/things"), operation(document, "get", "/things/{thing}")
    assert {"bearer": []} in create["security"]
    assert {} not in create["security"]
    assert {} in operation(document, "post", "/extra/jobs")["security"]
    assert "security" not in read
    assert create["responses"].keys() == {"201", "400", "401", "403", "409", "413", "422", "429", "503"}
    change = operation(document, "patch", "/things/{thing}")
    assert change["responses"].keys() == {"200", "400", "401", "403", "404", "413", "414", "422", "429", "503"}
    assert read["responses"].keys() == {"200", "400", "404", "414", "422", "429", "503"}
    for name in document["components"]["responses"]:
        assert document["components"]["responses"][name]["content"].keys() == {"application/problem+json"}


def test_every_code_of_a_problem_is_listed(document: dict[str, Any]) -> None:
    assert {problem["code"] for problem in document["x-problems"]} == set(PlazaError.by_code)


def schema_of(document: dict[str, Any], reference: dict[str, str]) -> Draft202012Validator:
    return Draft202012Validator({**reference, "components": document["components"]})


async def test_responses_match_the_document(client: httpx.AsyncClient, document: dict[str, Any]) -> None:
    made = await client.post("/things", json={"title": "Lamp"}, headers=token())
    created = operation(document, "post", "/things")["responses"]["201"]
    schema_of(document, created["content"]["application/json"]["schema"]).validate(made.json())
    for answer in [
        await client.post("/things", json={"title": ""}, headers=token()),
        await client.post("/things"),
        await client.get("/things/99"),
    ]:
        reference = operation(document, "post", "/things")["responses"].get(str(answer.status_code))
        reference = reference or {"$ref": "#/components/responses/NotFound"}
        problem = document["components"]["responses"][reference["$ref"].rsplit("/", 1)[1]]
        schema_of(document, problem["content"]["application/problem+json"]["schema"]).validate(answer.json())
    for name in document["components"]["headers"]:
        assert name in made.headers


@pytest.mark.parametrize("body", [{"title": ""}, {"title": "x" * 21}, {}, {"title": "x", "more": 1}, {"title": 1}])
async def test_the_server_refuses_what_the_schema_refuses(
    client: httpx.AsyncClient, document: dict[str, Any], body: Any
) -> None:
    schema = schema_of(document, {"$ref": "#/components/schemas/NewThing"})
    assert not schema.is_valid(body)
    assert (await client.post("/things", json=body, headers=token())).status_code == 422


async def test_the_document_is_cached_and_revalidated(client: httpx.AsyncClient) -> None:
    first = await client.get("/openapi.json")
    again = await client.get("/openapi.json", headers={"if-none-match": f'"x", W/{first.headers["etag"]}'})
    assert (again.status_code, again.content) == (304, b"")
    assert again.headers["etag"] == first.headers["etag"]
    changed = await client.get("/openapi.json", headers={"if-none-match": '"other"'})
    assert changed.status_code == 200


def test_two_handlers_of_one_name_are_refused() -> None:
    async def get_twin() -> None: ...

    groups = [Routes("first"), Routes("second")]
    groups[0].get("/a", access=PUBLIC)(get_twin)
    groups[1].get("/b", access=PUBLIC)(get_twin)
    with pytest.raises(AssertionError, match="GET /b and GET /a have the same operationId getTwin"):
        make_app(groups, auth=AUTH, settings=SETTINGS)


def test_a_handler_with_an_unknown_parameter_stops_the_start() -> None:
    class Nowhere:
        pass

    def with_handler(path: str, handler: Any) -> None:
        group = Routes("wrong")
        group.get(path, access=PUBLIC)(handler)
        make_app([group], auth=AUTH, settings=SETTINGS)

    async def wants_service(nowhere: Nowhere) -> None: ...
    async def forgets_path() -> None: ...
    async def wants_body(body: int) -> None: ...
    def is_not_async() -> None: ...
    async def has_no_type(x) -> None: ...  # type: ignore[no-untyped-def]

    wants_service.__annotations__["nowhere"] = Nowhere
    with pytest.raises(AssertionError, match=r"GET /a .*nowhere: no such service"):
        with_handler("/a", wants_service)
    with pytest.raises(AssertionError, match="no parameter takes"):
        with_handler("/a/{id}", forgets_path)
    with pytest.raises(AssertionError, match="GET has no body"):
        with_handler("/a", wants_body)
    with pytest.raises(AssertionError, match="a handler must be async"):
        with_handler("/a", is_not_async)
    with pytest.raises(AssertionError, match="x has no type"):
        with_handler("/a", has_no_type)


def test_a_struct_may_rename_its_query_parameters() -> None:
    group = Routes("spans")

    @group.get("/spans", access=PUBLIC)
    async def handler(span: Span) -> Span:
        return span

    app = make_app([group], auth=AUTH, settings=SETTINGS)
    described = msgspec.json.decode(app.api_docs.openapi.body)["paths"]["/spans"]["get"]["parameters"]
    assert [(p["name"], p["required"]) for p in described] == [("firstDay", True), ("lastDay", False)]
