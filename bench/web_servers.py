"""The same endpoint in four frameworks, one per process: `python -m bench.web_servers NAME`.

Each reads a JSON body `{title, link, groups}`, identifies the user by a cached token, and responds 201 with the
article, among 120 routes. `bare` is an ASGI function that does only this, without routes, checks or headers.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Callable
from typing import Annotated, Any

import falcon.asgi
import fastapi
import msgspec
import pydantic
import uvicorn
from msgspec import Meta

from plaza.core.auth import Actor, Auth
from plaza.core.http.access import AUTHENTICATED, PUBLIC
from plaza.core.http.app import make_app
from plaza.core.http.app_options import AppOptions
from plaza.core.http.routes import Routes
from plaza.core.http.uvicorn_protocol import GuardedHttpProtocol
from plaza.core.settings import Settings
from plaza.core.telemetry import RequestLog

ROUTES = 120
SETTINGS = Settings(jwt_secret="s" * 32, api_key="k" * 32, rate_limits=False)
AUTH = Auth(SETTINGS)

Title = Annotated[str, Meta(min_length=1, max_length=300)]


class NewBenchArticle(msgspec.Struct, forbid_unknown_fields=True):
    title: Title
    link: Annotated[str, Meta(max_length=2000)]
    groups: list[str] = []


class BenchArticle(msgspec.Struct):
    id: int
    title: str
    link: str
    groups: list[str]
    author: str
    votes: int
    time: float


class NewArticleModel(pydantic.BaseModel, extra="forbid"):
    title: Annotated[str, pydantic.Field(min_length=1, max_length=300)]
    link: Annotated[str, pydantic.Field(max_length=2000)]
    groups: list[str] = []


class ArticleModel(pydantic.BaseModel):
    id: int
    title: str
    link: str
    groups: list[str]
    author: str
    votes: int
    time: float


def templates() -> list[str]:
    """120 paths like those of Plaza; the measured one is the last."""
    nouns = [f"nouns{i}" for i in range(ROUTES // 4)]
    shapes = ["/{0}", "/{0}/{{id}}", "/{0}/{{id}}/parts", "/{0}/{{id}}/parts/{{name}}"]
    return [*[shape.format(noun) for noun in nouns for shape in shapes][: ROUTES - 1], "/articles"]


def bare() -> Any:
    decode, encode = msgspec.json.Decoder(NewBenchArticle).decode, msgspec.json.Encoder().encode

    async def app(scope: Any, receive: Any, send: Any) -> None:
        if scope["type"] != "http":
            return
        message = await receive()
        body = decode(message["body"])
        payload = encode(BenchArticle(1, body.title, body.link, body.groups, "user:ana", 1, 1.5))
        headers = [(b"content-type", b"application/json"), (b"content-length", b"%d" % len(payload))]
        await send({"type": "http.response.start", "status": 201, "headers": headers})
        await send({"type": "http.response.body", "body": payload})

    return app


def plaza() -> Any:
    route = Routes("bench")

    async def other(actor: Actor | None) -> BenchArticle:
        raise NotImplementedError

    async def other_id(id: str, actor: Actor | None) -> BenchArticle:
        raise NotImplementedError

    async def other_name(id: str, name: str, actor: Actor | None) -> BenchArticle:
        raise NotImplementedError

    by_depth: list[Callable[..., Any]] = [other, other_id, other_name]
    for template in templates()[:-1]:
        route.get(template, access=PUBLIC, in_openapi=False)(by_depth[template.count("{")])

    @route.post("/articles", access=AUTHENTICATED, status=201)
    async def create(actor: Actor, body: NewBenchArticle) -> BenchArticle:
        return BenchArticle(1, body.title, body.link, body.groups, f"user:{actor.name}", 1, 1.5)

    log = open(os.devnull, "w")  # noqa: SIM115
    return make_app([route], auth=AUTH, settings=SETTINGS, options=AppOptions(observer=RequestLog(log, pretty=False)))


def fast_api() -> Any:
    app = fastapi.FastAPI()
    seen: dict[str, str] = {}

    async def caller(authorization: Annotated[str, fastapi.Header()]) -> str:
        return seen.setdefault(authorization, "ana")

    known = fastapi.Depends(caller)  # as a default value: annotations are strings here and cannot refer to a local name

    async def other(name: str = known) -> ArticleModel:
        raise NotImplementedError

    for template in templates()[:-1]:
        app.get(template, operation_id=template)(other)

    @app.post("/articles", status_code=201)
    async def create(body: NewArticleModel, name: str = known) -> ArticleModel:
        return ArticleModel(
            id=1, title=body.title, link=body.link, groups=body.groups, author=f"user:{name}", votes=1, time=1.5
        )

    return app


def falcon_asgi() -> Any:
    app: Any = falcon.asgi.App()
    decode, encode = msgspec.json.Decoder(NewBenchArticle).decode, msgspec.json.Encoder().encode
    seen: dict[str, str] = {}

    class Other:
        async def on_get(self, req: Any, resp: Any, **path: str) -> None:
            raise NotImplementedError

    class ArticlesResource:
        async def on_post(self, req: Any, resp: Any) -> None:
            name = seen.setdefault(req.auth, "ana")
            body = decode(await req.stream.read())
            resp.status = 201
            resp.content_type = "application/json"
            resp.data = encode(BenchArticle(1, body.title, body.link, body.groups, f"user:{name}", 1, 1.5))

    for template in templates()[:-1]:
        app.add_route(template, Other())
    app.add_route("/articles", ArticlesResource())
    return app


APPS: dict[str, Callable[[], Any]] = {"bare": bare, "plaza": plaza, "falcon": falcon_asgi, "fastapi": fast_api}


def serve(name: str, port: int) -> None:
    # Plaza has its own uvicorn protocol, which is part of its cost.
    http: Any = GuardedHttpProtocol if name == "plaza" else "httptools"
    uvicorn.run(
        APPS[name](), host="127.0.0.1", port=port, loop="uvloop", http=http, lifespan="off",
        access_log=False, log_level="warning", proxy_headers=False, server_header=False,
    )  # fmt: skip


if __name__ == "__main__":
    serve(sys.argv[1], int(sys.argv[2]))
