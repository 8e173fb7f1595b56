"""A Starlette application with Plaza under `/community`.

uvicorn examples.embedding.starlette_app:app
"""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import PlainTextResponse
from starlette.routing import Mount, Route

from plaza import asgi


@asynccontextmanager
async def lifespan(app: Starlette) -> AsyncIterator[None]:
    """Start what the application needs, and Plaza."""
    async with asgi.lifespan():
        yield


async def home(request: Request) -> PlainTextResponse:
    """Respond with the application's own page."""
    return PlainTextResponse("home")


app = Starlette(routes=[Route("/", home), Mount("/community", asgi)], lifespan=lifespan)
