"""What players reported, in SQL: one row per count and life of the event's keys. Counts only grow."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping

from sqlalchemy import case, select

from plaza.core.sequences import chunks
from plaza.core.sql import Sql
from plaza.live.tables import REPORTS

ROWS_PER_STATEMENT = 500


class ReportHistory:
    """Writes and reads the counts of reports."""

    def __init__(self, sql: Sql) -> None:
        self._sql = sql

    async def save(self, event: str, born_at: int, counts: Mapping[tuple[str, str, int], int]) -> None:
        """Write the counts of a life. Writing them twice changes nothing; older, smaller ones are ignored."""
        rows = [
            {"event": event, "born_at": born_at, "metric": metric, "name": name, "bucket": bucket, "count": count}
            for (metric, name, bucket), count in counts.items()
        ]
        insert, now = self._sql.insert(REPORTS), REPORTS.c
        new = insert.excluded["count"]
        larger = case((new > now["count"], new), else_=now["count"])
        upsert = insert.on_conflict_do_update(index_elements=list(REPORTS.primary_key), set_={"count": larger})
        for batch in chunks(rows, ROWS_PER_STATEMENT):
            async with self._sql.begin() as tx:
                await tx.execute(upsert, batch)

    async def read(self, event: str, *, except_born_at: int | None) -> Counter[tuple[str, str, int]]:
        """Return the counts of all lives but one, which is still in Valkey."""
        c = REPORTS.c
        query = select(c.metric, c.name, c.bucket, c["count"]).where(c.event == event)
        if except_born_at is not None:
            query = query.where(c.born_at != except_born_at)
        found: Counter[tuple[str, str, int]] = Counter()
        for row in await self._sql.fetch_all(query):
            metric, name, bucket, count = tuple(row)
            found[metric, name, bucket] += count
        return found
