"""The daily job: reads new rows, starts a new day, and rebuilds what does not match the tables.

Its cursor in Valkey moves on after each written batch, and every write states a value, not a change. So it can be
killed anywhere, run twice or miss five days: the result depends only on the tables and the day. If a table's row count
is not the last count plus new rows minus rows that Plaza deleted, another program has deleted rows; the parts derived
from that table are then rebuilt.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING, Any, Final

import msgspec
from sqlalchemy import and_, delete, func, or_, select

from plaza.challenges.daily_job.rebuild import Progress, Rebuild, fetch_in_batches
from plaza.challenges.daily_job.source_tables import JobState, TableState, read_table_state
from plaza.challenges.keys import COUNTS, DB_CURSOR, DB_LEN, ON_CLG_INFO, POST_CLG_PAIR, RS_PARAM
from plaza.challenges.model import CATEGORIES
from plaza.challenges.projection import ChallengeProjections
from plaza.challenges.readable_rows import BATCH
from plaza.challenges.recommendation.popular_posts import PopularPosts
from plaza.challenges.tables import (
    CHALLENGE,
    DELETE_LOG,
    INSERT_LOG,
    LOGGED_TABLES,
    POST,
    TABLES,
    pool_condition,
)
from plaza.core.extras import is_installed
from plaza.core.leases import Leases
from plaza.core.sequences import chunks

if TYPE_CHECKING:
    from plaza.challenges.recommendation.training import NeighbourTraining

# The parts to rebuild if another program has deleted rows of a table.
PARTS_BY_TABLE: Final = {
    "clg": ("clg", "post", "reaction", "tracking"),
    "mmbr": (),
    "post": ("post", "reaction"),
    "reaction": ("reaction",),
    "tracking": ("tracking",),
}
# The tables from which the neighbours of challenges are computed.
TRAINING_TABLES: Final = ("clg", "mmbr", "reaction")
# Until format 2, liked posts and preferences were limited to ongoing challenges. Until format 3, members had no totals.
# A run rebuilds these parts once.
FORMAT: Final = "3"
# How long a run waits for another process's run, which takes seconds.
WAIT_SECONDS: Final = 30.0


class DailyJobResult(msgspec.Struct, frozen=True):
    """What a run of the daily job did."""

    day_index: int
    rows: dict[str, int]  # new rows read, by table
    rebuilt: list[str]  # rebuilt parts
    fitted: int  # challenges whose neighbours were computed; 0 if their tables have not changed
    db_len: dict[str, int]


class DailyJob:
    """Updates Valkey from the SQL tables and the day."""

    def __init__(self, projections: ChallengeProjections, leases: Leases) -> None:
        self._projections = projections
        self._sql = projections.sql
        self._valkey = projections.valkey
        self._leases = leases
        self._popular = PopularPosts(projections)

    async def run(
        self, progress: Progress = lambda step, done, total: None, *, rebuild_all: bool = False
    ) -> DailyJobResult:
        """Run the job; with `rebuild_all`, from the tables alone. Concurrent runs wait for each other."""
        async with self._leases.hold("challenges.record", wait=WAIT_SECONDS):
            return await self._run(progress, rebuild_all)

    async def _run(self, progress: Progress, rebuild_all: bool) -> DailyJobResult:
        today = self._projections.today()
        last_run = await JobState.read(self._valkey)
        tables = await read_table_state(self._sql, last_run)
        projections = self._projections.up_to(tables.ceilings)
        parts = self._parts_to_rebuild(last_run, tables, rebuild_all)
        await self._projections.clear_old_slots(today)
        rows = dict.fromkeys(TABLES, 0)
        for name in TABLES:
            if name not in parts:
                rows[name] = await self._read_new_rows(name, last_run, tables, today, projections, progress)
        await _update_changed(projections, [*tables.removals, *tables.missing], today)
        if last_run.is_complete:
            await self._change_day(last_run.day, today, progress)
        parts |= await self._miscounted_parts(today)
        for part in sorted(parts):
            await Rebuild(projections).rebuild(part, today, progress)
        await self._finish(tables, today)
        fitted = await self._train(last_run, tables, today, rebuild_all, progress)
        return DailyJobResult(today % self._projections.max_post_age, rows, sorted(parts), fitted, dict(tables.counts))

    async def _train(
        self, last_run: JobState, tables: TableState, today: int, rebuild_all: bool, progress: Progress
    ) -> int:
        """Compute the neighbours of challenges, unless that was done today from the same rows."""
        numbers = (n for name in TRAINING_TABLES for n in (tables.ceilings[name], tables.counts[name]))
        source = " ".join(map(str, (today, *numbers)))
        if last_run.cursor.get("model") == source and not rebuild_all:
            return 0
        await self._popular.store(today)
        training = _neighbour_training(self._projections)
        fitted = 0 if training is None else await training.run(today, progress)
        await self._valkey.call("HSET", DB_CURSOR(COUNTS), "model", source)
        return fitted

    def _parts_to_rebuild(self, last_run: JobState, tables: TableState, rebuild_all: bool) -> set[str]:
        """The parts to rebuild: all on the first run and when `max_post_age` has changed, since it moves all slots."""
        if (
            rebuild_all
            or not last_run.is_complete
            or last_run.params["max_post_age"] != str(self._projections.max_post_age)
        ):
            return set(PARTS_BY_TABLE["clg"])
        outdated = {"reaction", "tracking"} if last_run.cursor.get("format") != FORMAT else set()
        return outdated | {part for name in tables.changed_tables(last_run) for part in PARTS_BY_TABLE[name]}

    async def _miscounted_parts(self, today: int) -> set[str]:
        """The parts to rebuild because Valkey has another number of challenges or posts than the tables.

        Only this finds a challenge or post that another program deleted before any run counted it.
        """
        ongoing = select(func.count()).select_from(CHALLENGE).where(CHALLENGE.c.ends_day > today)
        pool = select(func.count()).select_from(POST).join(CHALLENGE, POST.c.challenge_id == CHALLENGE.c.id)
        async with self._sql.read() as tx:
            challenges = (await tx.execute(ongoing)).scalar_one()
            posts = (await tx.execute(pool.where(pool_condition(today, self._projections.max_post_age)))).scalar_one()
        stored = await self._valkey.batch([("HLEN", ON_CLG_INFO()), ("HLEN", POST_CLG_PAIR())])
        expected = {"clg": challenges, "post": posts}
        wrong = [name for name, count in zip(expected, stored, strict=True) if count != expected[name]]
        return {part for name in wrong for part in PARTS_BY_TABLE[name]}

    async def _read_new_rows(
        self,
        name: str,
        last_run: JobState,
        tables: TableState,
        today: int,
        projections: ChallengeProjections,
        progress: Progress,
    ) -> int:
        """Write new rows of a table to Valkey, in batches by id. The cursor moves on after each batch."""
        table, last, taken = TABLES[name], last_run.last_id(name), last_run.taken(name)
        before, total = taken, tables.new[name]
        while last < tables.ceilings[name]:
            new = and_(table.c.id > last, table.c.id <= tables.ceilings[name])
            async with self._sql.read() as tx:
                rows = (await tx.execute(select(table).where(new).order_by(table.c.id).limit(BATCH))).all()
            if not rows:
                break
            await _write(projections, name, rows, today)
            last = rows[-1].id
            taken += len(rows)
            await self._save_cursor(name, last, taken)
            progress(f"new {table.name} rows", len(rows), total - before)
        return taken - before

    async def _save_cursor(self, name: str, last: int, taken: int) -> None:
        await self._valkey.call("HSET", DB_CURSOR(COUNTS), name, last, f"{name}:taken", taken)

    async def _change_day(self, last: int, today: int, progress: Progress) -> None:
        """Update challenges that ended since the last run and posts that became too old.

        If the clock was set back, the same rows change in the other direction.
        """
        age, early, late = self._projections.max_post_age, min(last, today), max(last, today)
        if early == late:
            return
        ended = and_(CHALLENGE.c.ends_day > early, CHALLENGE.c.ends_day <= late)
        async for rows, _ in fetch_in_batches(self._sql, select(CHALLENGE.c.id).where(ended), CHALLENGE.c.id):
            await self._projections.update_challenges([row.id for row in rows])
        moved = or_(
            and_(POST.c.day > early - age, POST.c.day <= late - age),
            and_(POST.c.day > early, POST.c.day <= late),
            and_(ended, POST.c.day > early - age),
        )
        join = select(POST.c.id).join(CHALLENGE, POST.c.challenge_id == CHALLENGE.c.id)
        async for rows, total in fetch_in_batches(self._sql, join.where(moved), POST.c.id):
            await self._projections.update_posts([row.id for row in rows], today=today)
            progress("posts of other days", len(rows), total)

    async def _finish(self, tables: TableState, today: int) -> None:
        """Write the parameters, counts and cursor. Counts and cursor change together: the next run compares them."""
        age = self._projections.max_post_age
        cursor: list[str | int] = ["day", today, "format", FORMAT]
        for name, ceiling in tables.ceilings.items():
            cursor += [name, ceiling, f"{name}:counted", ceiling, f"{name}:taken", 0]
        counts = [part for pair in tables.counts.items() for part in pair]
        params = ("max_post_age", age, "distinct_category", CATEGORIES, "day_index", today % age)
        await self._valkey.call("HSET", RS_PARAM(), *params)
        await self._valkey.multi([("HSET", DB_LEN(), *counts), ("HSET", DB_CURSOR(COUNTS), *cursor)])
        await self._clear_logs(tables)

    async def _clear_logs(self, tables: TableState) -> None:
        """Delete log entries that this run has processed or counted."""
        for log, rows in ((DELETE_LOG, tables.removals), (INSERT_LOG, tables.missing)):
            for ids in chunks([row.id for row in rows], BATCH):
                async with self._sql.begin() as tx:
                    await tx.execute(delete(log).where(log.c.id.in_(ids)))
        counted = or_(
            *(
                and_(INSERT_LOG.c.table_name == name, INSERT_LOG.c.row_id <= tables.ceilings[name])
                for name in LOGGED_TABLES
            )
        )
        batch = select(INSERT_LOG.c.id).where(counted).order_by(INSERT_LOG.c.id).limit(BATCH)
        deleted = True
        while deleted:
            async with self._sql.begin() as tx:
                deleted = bool((await tx.execute(delete(INSERT_LOG).where(INSERT_LOG.c.id.in_(batch)))).rowcount)


async def _write(projections: ChallengeProjections, name: str, rows: Iterable[Any], today: int) -> None:
    if name == "clg":
        await projections.update_challenges([row.id for row in rows])
    elif name == "post":
        await projections.update_posts([row.id for row in rows], today=today)
    elif name == "reaction":
        await projections.reactions.add(list(rows))
    elif name == "tracking":
        names = sorted({row.username for row in rows})
        await projections.contributions.update(names)
        await projections.totals.update(names)
    elif name == "mmbr":
        await projections.totals.update(sorted({row.username for row in rows}))


async def _update_changed(projections: ChallengeProjections, changes: Iterable[Any], today: int) -> None:
    """Update what is derived from logged rows. Rows of a deleted user have no name and are up to date already."""
    changed: dict[str, list[Any]] = {name: [row for row in changes if row.table_name == name] for name in TABLES}
    changed |= {name: [row for row in changed[name] if row.username] for name in LOGGED_TABLES}
    await projections.update_challenges([row.row_id for row in changed["clg"]])
    await projections.update_posts([row.row_id for row in changed["post"]], today=today)
    await projections.reactions.update([(row.username, row.post_id, row.challenge_id) for row in changed["reaction"]])
    names = {row.username for row in changed["tracking"]}
    await projections.contributions.update(names)
    await projections.totals.update(names)


def _neighbour_training(projections: ChallengeProjections) -> NeighbourTraining | None:
    """What computes similar challenges; None without numpy."""
    if not is_installed("recommend"):
        return None
    # Imported late: numpy takes a third of a second.
    from plaza.challenges.recommendation.training import NeighbourTraining

    return NeighbourTraining(projections)
