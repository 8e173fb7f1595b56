"""How a domain declares its routes. A route translates, it never decides: the signature says what it needs.

    route = Routes("articles")

    @route.post("/articles", access=USER, status=201, idempotent=True)
    async def create(actor: Actor, body: NewArticle, articles: Articles) -> Article:
        return await articles.create(actor, body)

Names in the template are path parameters, `body` is the JSON body, `actor` who asks (`Actor | None` where nobody may
ask too), a `Request` the request itself, a type known to the application a service, and everything else is a query
parameter: a scalar, or a Struct whose fields are parameters (`page: Page`). `core/http/binding.py` reads the
signature once, at start; `core/http/openapi.py` describes the same reading.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Literal, Required, TypedDict, TypeVar, Unpack

from plaza.core.errors import PlazaError
from plaza.core.http.access import Access
from plaza.core.http.responses import JSON, Response

if TYPE_CHECKING:
    from plaza.core.http.request import Request

Method = Literal["GET", "POST", "PUT", "PATCH", "DELETE"]
Handler = TypeVar("Handler", bound=Callable[..., Any])
ErrorResponse = Callable[[PlazaError, "Request"], "Response[Any]"]

# What a person types and a little more; a route that takes batches says so itself.
BODY_LIMIT = 1024 * 1024


@dataclass(frozen=True, slots=True)
class Named:
    """A query parameter whose name Python cannot have: `Annotated[int, Named("postsPerHashtag")]`."""

    name: str


class Options(TypedDict, total=False):
    """What a route may say of itself beside its path."""

    access: Required[Access]  # who may call it
    status: int  # of success; 200
    limit: str | None  # the kind of rate limit it counts against; "read" for GET, else "write"
    by_cookie: bool  # a page or its form: the session cookie identifies the caller, headers do not
    # An `Idempotency-Key` is honoured; "itself": by the handler, since an answer that holds tokens is not kept.
    idempotent: bool | Literal["itself"]
    caller: Callable[[Request], str] | None  # whose a keyed request is, beside its credentials and address: a cookie's
    body_limit: int  # bytes
    media_type: str  # of a successful answer
    takes: str  # media type of a body that the handler reads itself, as bytes
    listed: bool  # in the OpenAPI document
    any_query: bool  # unknown query parameters are ignored: for pages that people link to
    also: Mapping[int, Any]  # further answers, by status, for the OpenAPI document
    on_error: ErrorResponse | None  # another protocol's own form of errors


@dataclass(frozen=True, slots=True, kw_only=True)
class Route:
    """One method of one path."""

    method: Method
    template: str
    handler: Callable[..., Any]
    tag: str
    access: Access
    status: int = 200
    limit: str | None = None
    by_cookie: bool = False
    idempotent: bool | Literal["itself"] = False
    caller: Callable[[Request], str] | None = None
    body_limit: int = BODY_LIMIT
    media_type: str = JSON
    takes: str = "application/octet-stream"
    listed: bool = True
    any_query: bool = False
    also: Mapping[int, Any] = field(default_factory=dict)
    on_error: ErrorResponse | None = None

    @property
    def safe(self) -> bool:
        return self.method == "GET"


class Routes:
    """The routes of one domain, under one tag."""

    def __init__(self, tag: str, *, prefix: str = "", about: str = "") -> None:
        self.tag = tag
        self.prefix = prefix
        self.about = about
        self.routes: list[Route] = []

    def get(self, path: str, **options: Unpack[Options]) -> Callable[[Handler], Handler]:
        return self._adder("GET", path, options)

    def post(self, path: str, **options: Unpack[Options]) -> Callable[[Handler], Handler]:
        return self._adder("POST", path, options)

    def put(self, path: str, **options: Unpack[Options]) -> Callable[[Handler], Handler]:
        return self._adder("PUT", path, options)

    def patch(self, path: str, **options: Unpack[Options]) -> Callable[[Handler], Handler]:
        return self._adder("PATCH", path, options)

    def delete(self, path: str, **options: Unpack[Options]) -> Callable[[Handler], Handler]:
        return self._adder("DELETE", path, options)

    def _adder(self, method: Method, path: str, options: Options) -> Callable[[Handler], Handler]:
        options.setdefault("limit", "read" if method == "GET" else "write")

        def add(handler: Handler) -> Handler:
            template = self.prefix + path
            self.routes.append(Route(method=method, template=template, handler=handler, tag=self.tag, **options))
            return handler

        return add
