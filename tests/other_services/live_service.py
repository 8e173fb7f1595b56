"""Another analytics service for live events: it writes by the document, one plain command after the other."""

from __future__ import annotations

from typing import Any

from tests.other_services.running import PlazaBesideOthers


class AnalyticsService:
    """Writes and reads the keys of the live document."""

    def __init__(self, beside: PlazaBesideOthers) -> None:
        self.client: Any = beside.client
        self.owned = beside.owned
        self.now = beside.plaza.core.clock.now_ms

    async def beat(
        self,
        event: str,
        user: str,
        at: float,
        *,
        location: str,
        session: str = "",
        start: float | None = None,
        details: str = "198.51.100.7#crew#NZ",
    ) -> None:
        """Write a heartbeat; with a `start`, a viewing session begins."""
        client, member = self.client, f"{user}#{details}"
        await client.zadd(f"{self.owned(event)}#Event#Heartbeat", {user: at})
        await client.zadd(f"{self.owned(event)}#Event#Statistics", {member: at})
        await client.sadd(f"{self.owned(event)}#EventAttendedUsers", user)
        if session:
            await client.zadd(f"{self.owned(session)}#Session#Heartbeat", {user: at})
            await client.zadd(f"{self.owned(session)}#Session#Statistics", {member: at})
            await client.sadd(f"{self.owned(session)}#SessionAttendedUsers", user)
        place = f"{self.owned(event)}#{session}#{location}" if session else f"{self.owned(event)}#{location}"
        if start is not None:
            await client.zadd(f"{place}#ViewingSessionStart", {user: start})
        await client.zadd(f"{place}#ViewingSessionEnd", {user: at})

    async def count_alive(self, event: str, window_ms: int = 65_000) -> int:
        """Count viewers as the document says: ZCOUNT from now minus the threshold."""
        count: int = await self.client.zcount(f"{self.owned(event)}#Event#Heartbeat", self.now() - window_ms, "+inf")
        return count
