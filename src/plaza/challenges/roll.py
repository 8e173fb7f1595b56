"""The daily job: takes new rows in, turns the day, and makes good what does not fit.

Its place is kept in Valkey and moves on only when a batch has been written, and what is written says how things are,
not what changed. So it may be killed anywhere and begun again, run twice, or miss five days: what comes out depends on
the tables and the day alone. A table whose count is not what the last roll left plus what came and minus what Plaza
itself removed was changed behind our back, and the part that follows from it is made anew.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Iterable
from typing import Any, Final

import msgspec
from sqlalchemy import Select, and_, delete, func, or_, select

from plaza.challenges.derived import BATCH, Derived, batches
from plaza.challenges.fitting import Fitting
from plaza.challenges.keys import (
    CATALOGUE,
    CLGS_PREFERENCE,
    COUNTS,
    DB_CURSOR,
    DB_LEN,
    LIKED_POSTS,
    ON_CLG_INFO,
    POST_CLG_PAIR,
    RECENT_POSTS,
    RS_PARAM,
    USER_CONTRIBUTION,
)
from plaza.challenges.model import CATEGORIES
from plaza.challenges.survey import Place, Survey, survey
from plaza.challenges.tables import BY_NAME, CHALLENGE, POST, REACTION, REMOVAL, TRACKING
from plaza.core.auth import ADMIN, Actor
from plaza.core.leases import Leases

# What must be made anew when the count of a table does not fit.
PARTS: Final = {
    "clg": ("clg", "post", "reaction", "tracking"),
    "mmbr": (),
    "post": ("post", "reaction"),
    "reaction": ("reaction",),
    "tracking": ("tracking",),
}
# The tables that challenges' neighbours follow from.
LEARNT_FROM: Final = ("clg", "mmbr", "reaction")
# A roll that another process is at takes seconds; who asks for one waits that long.
WAIT_SECONDS: Final = 30.0

Progress = Callable[[str, int], None]  # what is being done, and how many rows of it just were


class Rolled(msgspec.Struct, frozen=True):
    """What a roll did."""

    day_index: int
    rows: dict[str, int]  # new rows taken in, by table
    rebuilt: list[str]  # parts made anew
    fitted: int  # challenges whose neighbours were learnt anew; 0 if nothing has changed that they follow from
    db_len: dict[str, int]


class Roll:
    """Brings Valkey to where the tables and the day are."""

    def __init__(self, derived: Derived, leases: Leases) -> None:
        self._derived = derived
        self._sql = derived.sql
        self._valkey = derived.valkey
        self._leases = leases
        self._fitting = Fitting(derived)

    async def ask(self, actor: Actor) -> Rolled:
        actor.require(ADMIN)
        return await self.run()

    async def run(self, progress: Progress = lambda step, rows: None, *, anew: bool = False) -> Rolled:
        """Roll; with `anew`, from the tables alone. Of several at once, one after the other."""
        async with self._leases.hold("challenges.record", wait=WAIT_SECONDS):
            return await self._run(progress, anew)

    async def _run(self, progress: Progress, anew: bool) -> Rolled:
        today = self._derived.today()
        place = await Place.read(self._valkey)
        found = await survey(self._sql, place)
        parts = self._misfits(place, found, anew)
        await self._derived.turn_day(today)
        rows = dict.fromkeys(BY_NAME, 0)
        for name in BY_NAME:
            if name not in parts:
                rows[name] = await self._take_in(name, place.at(name), found.ceilings[name], today, progress)
        await self._take_back(found.removals, today)
        if place.known:
            await self._change_day(int(place.cursor["day"]), today, progress)
        parts |= await self._surplus(today)
        for part in sorted(parts):
            await self._rebuild(part, today, progress)
        await self._finish(found, today)
        fitted = await self._fit(place, found, today, anew, progress)
        return Rolled(today % self._derived.max_post_age, rows, sorted(parts), fitted, dict(found.counts))

    async def _fit(self, place: Place, found: Survey, today: int, anew: bool, progress: Progress) -> int:
        """Learn what goes together, unless it was learnt today from the same rows."""
        source = " ".join(map(str, (today, *(n for t in LEARNT_FROM for n in (found.ceilings[t], found.counts[t])))))
        if place.cursor.get("model") == source and not anew:
            return 0
        fitted = await self._fitting.run(today)
        await self._valkey.call("HSET", DB_CURSOR(COUNTS), "model", source)
        progress("neighbours", fitted)
        return fitted

    def _misfits(self, place: Place, found: Survey, anew: bool) -> set[str]:
        """The parts to make anew. On the first roll, and when the slots are counted otherwise, that is all."""
        if anew or not place.known or place.params["max_post_age"] != str(self._derived.max_post_age):
            return set(PARTS["clg"])
        return {part for name in found.misfits(place) for part in PARTS[name]}

    async def _surplus(self, today: int) -> set[str]:
        """The parts to make anew because Valkey has another number of challenges or posts than it should by now.

        A row that was written by us and deleted by hand before any roll counted it is missed by nobody but them.
        """
        going = select(func.count()).select_from(CHALLENGE).where(CHALLENGE.c.ends_day > today)
        oldest = today - self._derived.max_post_age
        recent = and_(POST.c.day > oldest, POST.c.day <= today, POST.c.is_break.is_(False))
        shown = and_(CHALLENGE.c.is_public.is_(True), CHALLENGE.c.ends_day > today)
        pool = select(func.count()).select_from(POST).join(CHALLENGE, POST.c.challenge_id == CHALLENGE.c.id)
        async with self._sql.read() as tx:
            challenges = (await tx.execute(going)).scalar_one()
            posts = (await tx.execute(pool.where(recent, shown))).scalar_one()
        held = await self._valkey.batch([("HLEN", ON_CLG_INFO()), ("HLEN", POST_CLG_PAIR())])
        found = {
            name for name, is_, ought in zip(("clg", "post"), held, (challenges, posts), strict=True) if is_ != ought
        }
        return {part for name in found for part in PARTS[name]}

    async def _take_in(self, name: str, last: int, ceiling: int, today: int, progress: Progress) -> int:
        """New rows of a table, in batches by id. The place moves on when a batch has been written."""
        table = BY_NAME[name]
        taken = 0
        while last < ceiling:
            statement = select(table).where(table.c.id > last, table.c.id <= ceiling).order_by(table.c.id).limit(BATCH)
            async with self._sql.read() as tx:
                rows = (await tx.execute(statement)).all()
            if not rows:
                break
            await self._write(name, rows, today)
            last = rows[-1].id
            taken += len(rows)
            await self._note_place(name, last)
            progress(name, len(rows))
        return taken

    async def _note_place(self, name: str, last: int) -> None:
        await self._valkey.call("HSET", DB_CURSOR(COUNTS), name, last)

    async def _write(self, name: str, rows: Iterable[Any], today: int) -> None:
        if name == "clg":
            await self._derived.challenges([row.id for row in rows])
        elif name == "post":
            await self._derived.posts([row.id for row in rows], today=today)
        elif name == "reaction":
            await self._derived.reactions([(row.username, row.post_id, row.challenge_id) for row in rows])
        elif name == "tracking":
            await self._derived.contributions(sorted({row.username for row in rows}))

    async def _take_back(self, removals: Iterable[Any], today: int) -> None:
        """What follows from rows that Plaza itself removed."""
        of: dict[str, list[Any]] = {name: [row for row in removals if row.table_name == name] for name in BY_NAME}
        await self._derived.challenges([row.row_id for row in of["clg"]])
        await self._derived.posts([row.row_id for row in of["post"]], today=today)
        await self._derived.reactions([(row.username, row.post_id, row.challenge_id) for row in of["reaction"]])
        await self._derived.contributions({row.username for row in of["tracking"]}, "exact")

    async def _change_day(self, last: int, today: int, progress: Progress) -> None:
        """Challenges that ended since, posts that grew too old, and what hangs on them; or back again."""
        age, early, late = self._derived.max_post_age, min(last, today), max(last, today)
        if early == late:
            return
        ended = and_(CHALLENGE.c.ends_day > early, CHALLENGE.c.ends_day <= late)
        async for rows in self._paged(select(CHALLENGE.c.id).where(ended), CHALLENGE.c.id):
            await self._derived.challenges([row.id for row in rows])
        turned = or_(
            and_(POST.c.day > early - age, POST.c.day <= late - age),
            and_(POST.c.day > early, POST.c.day <= late),
            and_(ended, POST.c.day > early - age),
        )
        join = select(POST.c.id).join(CHALLENGE, POST.c.challenge_id == CHALLENGE.c.id)
        async for rows in self._paged(join.where(turned), POST.c.id):
            await self._derived.posts([row.id for row in rows], today=today)
            progress("posts of other days", len(rows))
        reacted = (
            select(REACTION)
            .join(POST, REACTION.c.post_id == POST.c.id)
            .join(CHALLENGE, REACTION.c.challenge_id == CHALLENGE.c.id)
            .where(or_(turned, ended))
        )
        async for rows in self._paged(reacted, REACTION.c.id):
            await self._write("reaction", rows, today)
            progress("reactions of other days", len(rows))

    async def _paged(self, statement: Select[Any], id: Any) -> AsyncIterator[list[Any]]:
        last = 0
        while True:
            async with self._sql.read() as tx:
                rows = list((await tx.execute(statement.where(id > last).order_by(id).limit(BATCH))).all())
            if not rows:
                return
            yield rows
            last = rows[-1].id

    async def _rebuild(self, part: str, today: int, progress: Progress) -> None:
        """A part from the tables, and nothing else: what Valkey has beyond them is looked at too, and goes."""
        if part == "clg":
            going = select(CHALLENGE.c.id).where(CHALLENGE.c.ends_day > today)
            async for rows in self._paged(going, CHALLENGE.c.id):
                await self._derived.challenges([row.id for row in rows])
                progress(part, len(rows))
            for ids in batches(await self._in_hash(ON_CLG_INFO())):
                await self._derived.challenges([int(id) for id in ids])
        elif part == "post":
            await self._rebuild_posts(today, progress)
        elif part == "reaction":
            async for names in self._names(REACTION):
                await self._derived.people(names)
                progress(part, len(names))
            await self._derived.people(await self._people_in_valkey())
        elif part == "tracking":
            async for names in self._names(TRACKING):
                await self._derived.contributions(names, "exact")
                progress(part, len(names))
            await self._derived.contributions(await self._in_hash(USER_CONTRIBUTION()), "exact")

    async def _rebuild_posts(self, today: int, progress: Progress) -> None:
        recent = select(POST.c.id).where(POST.c.day > today - self._derived.max_post_age)
        async for rows in self._paged(recent, POST.c.id):
            await self._derived.posts([row.id for row in rows], today=today)
            progress("post", len(rows))
        there = await self._in_hash(POST_CLG_PAIR())
        for category in range(1, CATEGORIES + 1):
            there |= await self._in_zset(RECENT_POSTS(category))
        await self._derived.posts([int(id) for id in there], today=today)

    async def _names(self, table: Any) -> AsyncIterator[list[str]]:
        last = ""
        while True:
            names = select(table.c.username).distinct().where(table.c.username > last).order_by(table.c.username)
            async with self._sql.read() as tx:
                found = list((await tx.execute(names.limit(BATCH))).scalars().all())
            if not found:
                return
            yield found
            last = found[-1]

    async def _in_hash(self, key: str) -> set[str]:
        return {name async for page in self._scan(self._valkey, "HSCAN", key) for name in page[::2]}

    async def _in_zset(self, key: str) -> set[str]:
        return {name async for page in self._scan(self._valkey, "ZSCAN", key) for name in page[::2]}

    async def _people_in_valkey(self) -> list[str]:
        found = set()
        for key in (LIKED_POSTS, CLGS_PREFERENCE):
            for node in self._valkey.primaries():
                async for names in self._scan(node, "SCAN", match=f"*{key.pattern.partition('>')[2]}"):
                    matches = [CATALOGUE.match(name) for name in names]
                    found |= {match.parts[0] for match in matches if match is not None and match.key is key}
        return sorted(found)

    async def _scan(self, node: Any, command: str, *key: str, match: str = "*") -> AsyncIterator[list[str]]:
        cursor = "0"
        while True:
            cursor, page = await node.call(command, *key, cursor, "MATCH", match, "COUNT", 1_000)
            yield page
            if str(cursor) == "0":
                return

    async def _finish(self, found: Survey, today: int) -> None:
        """The roll is done: say so. Counts and place change together, for the next roll compares them."""
        age = self._derived.max_post_age
        place: list[str | int] = ["day", today]
        for name, ceiling in found.ceilings.items():
            place += [name, ceiling, f"{name}:counted", ceiling]
        counts = [part for pair in found.counts.items() for part in pair]
        params = ("max_post_age", age, "distinct_category", CATEGORIES, "day_index", today % age)
        await self._valkey.call("HSET", RS_PARAM(), *params)
        await self._valkey.multi([("HSET", DB_LEN(), *counts), ("HSET", DB_CURSOR(COUNTS), *place)])
        for ids in batches([row.id for row in found.removals]):
            async with self._sql.begin() as tx:
                await tx.execute(delete(REMOVAL).where(REMOVAL.c.id.in_(ids)))
