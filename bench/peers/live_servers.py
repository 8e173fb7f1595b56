"""Two servers for heartbeats over HTTP, each in its own process: `python -m bench.peers.live_servers NAME PORT`.

`plaza` is the whole application: all domains, metrics, a log line per request. `fastapi` is a simple server: FastAPI
and redis-py's asyncio client with hiredis, the same documented keys in one pipeline, cached token checks, no log. It
has no peak, no login count and no history. A gap does not begin a new viewing session, because a pipeline cannot read
first.

PLAZA_VALKEY_URL gives the address of Valkey.
"""

from __future__ import annotations

import asyncio
import os
import sys
import time
from pathlib import Path
from typing import Annotated, Any

import fastapi
import jwt
import pydantic
import redis.asyncio
import uvicorn

from plaza.app import running
from plaza.core.settings import Settings

SECRET = "s" * 32
Id = Annotated[str, pydantic.Field(pattern=r"^[^#{}]+$", max_length=128)]


class Beat(pydantic.BaseModel, extra="forbid"):
    location: Id
    session_id: Id | None = None
    groups: Annotated[list[Id], pydantic.Field(max_length=20)] = []


def settings() -> Settings:
    return Settings(
        data_dir=Path(os.environ["PLAZA_DATA_DIR"]),
        valkey_url=os.environ["PLAZA_VALKEY_URL"],
        jwt_secret=SECRET,
        api_key="k" * 32,
        rate_limits=False,
        live_beats_per_second=1_000_000,
    )


def with_fastapi() -> Any:
    app = fastapi.FastAPI()
    client = redis.asyncio.Redis.from_url(os.environ["PLAZA_VALKEY_URL"])
    verified: dict[str, dict[str, Any]] = {}

    def user(authorization: Annotated[str, fastapi.Header()]) -> str:
        token = authorization.removeprefix("Bearer ")
        claims = verified.get(token)
        if claims is None:
            claims = verified[token] = jwt.decode(token, SECRET, algorithms=["HS256"])
        if claims["exp"] < time.time():
            raise fastapi.HTTPException(401)
        return str(claims["username"])

    @app.post("/analytics/events/{event}/heartbeat")
    async def heartbeat(
        event: Id, beat: Beat, request: fastapi.Request, name: str = fastapi.Depends(user)
    ) -> dict[str, Any]:
        now = int(time.time() * 1000)
        address = request.client.host if request.client else "local"
        member = f"{name}#{address}#{'#'.join(sorted(beat.groups))}#ZZ"
        session = beat.session_id
        place = f"{event}#{session}#{beat.location}" if session else f"{event}#{beat.location}"
        pipe = client.pipeline(transaction=False)
        pipe.zadd(f"{event}#Event#Heartbeat", {name: now})
        pipe.zadd(f"{place}#ViewingSessionStart", {name: now}, nx=True)
        pipe.zadd(f"{place}#ViewingSessionEnd", {name: now})
        pipe.zadd(f"{event}#Event#Statistics", {member: now})
        pipe.sadd(f"{event}#EventAttendedUsers", name)
        pipe.zcount(f"{event}#Event#Heartbeat", now - 65_000, "+inf")
        if session:
            pipe.zadd(f"{session}#Session#Heartbeat", {name: now})
            pipe.zadd(f"{session}#Session#Statistics", {member: now})
            pipe.sadd(f"{session}#SessionAttendedUsers", name)
            pipe.zcount(f"{session}#Session#Heartbeat", now - 65_000, "+inf")
        replies = await pipe.execute()
        return {"alive": replies[5], "session_alive": replies[-1] if session else None, "next_heartbeat_ms": 30_000}

    return app


async def serve(name: str, port: int) -> None:
    options: dict[str, Any] = {"port": port, "log_config": None, "access_log": False, "http": "httptools"}
    if name == "fastapi":
        await uvicorn.Server(uvicorn.Config(with_fastapi(), **options)).serve()
        return
    async with running(settings()) as plaza:
        await uvicorn.Server(uvicorn.Config(plaza.app, proxy_headers=False, **options)).serve()


if __name__ == "__main__":
    import uvloop

    # Plaza still writes its log line per request, but not between the tables of the benchmark.
    with Path(os.devnull).open("w") as sys.stderr, asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        runner.run(serve(sys.argv[1], int(sys.argv[2])))
