"""Heartbeats the usual way: FastAPI and redis-py, the documented keys in one pipeline.

It has no peak, no login count and no history. A gap does not begin a new viewing session, because a pipeline cannot
read first.
"""

from __future__ import annotations

import time
from typing import Annotated, Any

import fastapi
import pydantic

Id = Annotated[str, pydantic.Field(pattern=r"^[^#{}]+$", max_length=128)]


class Beat(pydantic.BaseModel, extra="forbid"):
    location: Id
    session_id: Id | None = None
    groups: Annotated[list[Id], pydantic.Field(max_length=20)] = []


def routes(db: Any, caller: Any) -> fastapi.APIRouter:
    router = fastapi.APIRouter()

    @router.post("/analytics/events/{event}/heartbeat")
    async def heartbeat(
        event: Id, beat: Beat, request: fastapi.Request, name: str = fastapi.Depends(caller)
    ) -> dict[str, Any]:
        now = int(time.time() * 1000)
        address = request.client.host if request.client else "local"
        member = f"{name}#{address}#{'#'.join(sorted(beat.groups))}#ZZ"
        session = beat.session_id
        place = f"{event}#{session}#{beat.location}" if session else f"{event}#{beat.location}"
        pipe = db.pipeline(transaction=False)
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

    return router
