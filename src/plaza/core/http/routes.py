"""Route declarations. The signature of a handler says what it needs, the decorator who may call it.

    route = Routes("articles")

    @route.post("/articles", access=USER, status=201, idempotent=True)
    async def create(actor: Actor, body: NewArticle, request: Request, articles: Articles) -> Article:
        '''Post an article.'''
        return await articles.create(actor, body, request.operation)

- A name in the path template is a path parameter.
- `body` is the JSON body.
- `actor` is the caller; `Actor | None` where the route's access is open.
- A `Request` is the request itself.
- A type that the application knows is a service.
- Everything else is a query parameter: a scalar, or a Struct whose fields are parameters (`page: Page`).

`handler_signature.py` and `argument_binding.py` read the signature once, at start. `openapi/` describes the same
signature.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Literal, Required, TypedDict, TypeVar, Unpack

from msgspec import Struct, field

from plaza.core.errors import PlazaError
from plaza.core.http.access import Access
from plaza.core.http.responses import JSON, Response

if TYPE_CHECKING:
    from plaza.core.http.request import Request
    from plaza.core.settings import Settings

Method = Literal["GET", "POST", "PUT", "PATCH", "DELETE"]
Handler = TypeVar("Handler", bound=Callable[..., Any])
ErrorResponse = Callable[[PlazaError, "Request"], "Response[Any]"]

# Enough for anything a user types. A route that takes batches declares its own limit.
MAX_BODY_BYTES = 1024 * 1024


class ParameterName(Struct, frozen=True):
    """The name of a query parameter that differs from Python's: `Annotated[int, ParameterName("postsPerHashtag")]`."""

    name: str


class Options(TypedDict, total=False):
    """The options of a route's decorator."""

    access: Required[Access]  # who may call it
    status: int  # of a successful response; 200
    limit: str | None  # the kind of rate limit it counts against; "read" for GET, else "write"
    limit_first: bool  # a costly read: the rate limit is checked before the handler runs, not at the same time
    by_cookie: bool  # a page or its form: the session cookie identifies the caller, headers do not
    # An `Idempotency-Key` is honoured. "by_handler": the handler does it, because responses with tokens are not stored.
    idempotent: bool | Literal["by_handler"]
    # Separates callers of the same address that an `Idempotency-Key` must not mix up, such as two session cookies.
    idempotency_scope: Callable[[Request], str] | None
    body_limit: int | Callable[[Settings], int]  # bytes
    takes_files: bool  # a page's form that may be sent as multipart/form-data; `Request.files` has its files
    media_type: str  # of a successful response
    request_media_type: str  # of a body that the handler reads as bytes
    in_openapi: bool  # whether the OpenAPI document has it
    # Whether calls by admins and API keys are recorded in the security log; by default writes that admins or API keys
    # may do. A route for users declares it if an admin may do more there than a user.
    logged: bool
    logged_fields: tuple[str, ...]  # fields of the body that the log may contain
    ignores_unknown_query: bool  # for pages: links often carry extra parameters
    other_responses: Mapping[int, Any]  # further responses by status, for the OpenAPI document
    on_error: ErrorResponse | None  # errors in the format of another protocol
    # For the OpenAPI document:
    raises: Sequence[type[PlazaError]]  # errors of the service that do not follow from the rest of the declaration
    example: Any  # a valid body
    example_parameters: Mapping[str, Any]  # examples by name, where those of the parameters' types do not suit
    body_schema: Any  # the type of a body that the handler checks itself


class Route(Struct, frozen=True, kw_only=True, eq=False):
    """One method of one path."""

    method: Method
    template: str
    handler: Callable[..., Any]
    tag: str
    access: Access
    status: int = 200
    limit: str | None = None
    limit_first: bool = False
    by_cookie: bool = False
    idempotent: bool | Literal["by_handler"] = False
    idempotency_scope: Callable[[Request], str] | None = None
    body_limit: int | Callable[[Settings], int] = MAX_BODY_BYTES
    takes_files: bool = False
    media_type: str = JSON
    request_media_type: str = "application/octet-stream"
    in_openapi: bool = True
    logged: bool | None = None
    logged_fields: tuple[str, ...] = ()
    ignores_unknown_query: bool = False
    other_responses: Mapping[int, Any] = field(default_factory=dict)
    on_error: ErrorResponse | None = None
    raises: Sequence[type[PlazaError]] = ()
    example: Any = None
    example_parameters: Mapping[str, Any] = field(default_factory=dict)
    body_schema: Any = None

    @property
    def safe(self) -> bool:
        """Whether it only reads (RFC 9110, 9.2.1)."""
        return self.method == "GET"

    @property
    def action(self) -> str:
        """Its name in the security log."""
        return f"{self.method} {self.template}"

    @property
    def summary(self) -> str:
        """The first line of its handler's docstring."""
        return (inspect.getdoc(self.handler) or "").partition("\n")[0].strip()

    @property
    def is_admin_action(self) -> bool:
        """Whether the security log records it when an admin or an API key calls it."""
        if self.logged is not None:
            return self.logged
        return not self.safe and self.access in (Access.ADMIN, Access.AUTHENTICATED, Access.API_KEY)


class Routes:
    """A group of routes under one tag."""

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
