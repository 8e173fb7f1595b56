"""The daily job: takes new rows in, turns the day, and makes good what does not fit.

Its place is kept in Valkey and moves on only when a batch has been written, and what is written says how things are,
not what changed. So it may be killed anywhere and begun again, run twice, or miss five days: what comes out depends on
the tables and the day alone. A table whose count is not what the last roll left plus what came and minus what Plaza
itself removed was changed behind our back, and the part that follows from it is made anew.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, Final

import msgspec
from sqlalchemy import and_, delete, func, or_, select

from plaza.challenges.keys import COUNTS, DB_CURSOR, DB_LEN, ON_CLG_INFO, POST_CLG_PAIR, RS_PARAM
from plaza.challenges.model import CATEGORIES
from plaza.challenges.projection import BATCH, Derived, batches
from plaza.challenges.rebuild import Progress, Rebuilding, paged
from plaza.challenges.recommendation.training import Fitting
from plaza.challenges.table_state import Place, Survey, survey
from plaza.challenges.tables import ARRIVAL, BY_NAME, CHALLENGE, NOTED, POST, REACTION, REMOVAL, pool_of
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
        self._rebuilding = Rebuilding(derived)

    async def run(self, progress: Progress = lambda step, done, total: None, *, anew: bool = False) -> Rolled:
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
                rows[name] = await self._take_in(name, place, found, today, progress)
        await self._take_back([*found.removals, *found.vanished], today)
        if place.known:
            await self._change_day(place.day, today, progress)
        parts |= await self._surplus(today)
        for part in sorted(parts):
            await self._rebuilding.part(part, today, progress)
        await self._finish(found, today)
        fitted = await self._fit(place, found, today, anew, progress)
        return Rolled(today % self._derived.max_post_age, rows, sorted(parts), fitted, dict(found.counts))

    async def _fit(self, place: Place, found: Survey, today: int, anew: bool, progress: Progress) -> int:
        """Learn what goes together, unless it was learnt today from the same rows."""
        source = " ".join(map(str, (today, *(n for t in LEARNT_FROM for n in (found.ceilings[t], found.counts[t])))))
        if place.cursor.get("model") == source and not anew:
            return 0
        fitted = await self._fitting.run(today, progress)
        await self._valkey.call("HSET", DB_CURSOR(COUNTS), "model", source)
        return fitted

    def _misfits(self, place: Place, found: Survey, anew: bool) -> set[str]:
        """The parts to make anew. On the first roll, and when the slots are counted otherwise, that is all."""
        if anew or not place.known or place.params["max_post_age"] != str(self._derived.max_post_age):
            return set(PARTS["clg"])
        return {part for name in found.misfits(place) for part in PARTS[name]}

    async def _surplus(self, today: int) -> set[str]:
        """The parts to make anew because Valkey has another number of challenges or posts than it should by now.

        One that was written by us and deleted by hand before any roll counted it is missed by nobody else.
        """
        going = select(func.count()).select_from(CHALLENGE).where(CHALLENGE.c.ends_day > today)
        pool = select(func.count()).select_from(POST).join(CHALLENGE, POST.c.challenge_id == CHALLENGE.c.id)
        async with self._sql.read() as tx:
            challenges = (await tx.execute(going)).scalar_one()
            posts = (await tx.execute(pool.where(pool_of(today, self._derived.max_post_age)))).scalar_one()
        held = await self._valkey.batch([("HLEN", ON_CLG_INFO()), ("HLEN", POST_CLG_PAIR())])
        found = {
            name for name, is_, ought in zip(("clg", "post"), held, (challenges, posts), strict=True) if is_ != ought
        }
        return {part for name in found for part in PARTS[name]}

    async def _take_in(self, name: str, place: Place, found: Survey, today: int, progress: Progress) -> int:
        """New rows of a table, in batches by id. The place moves on when a batch has been written."""
        table, last, taken = BY_NAME[name], place.at(name), place.taken(name)
        before, total = taken, found.new[name]
        while last < found.ceilings[name]:
            new = and_(table.c.id > last, table.c.id <= found.ceilings[name])
            async with self._sql.read() as tx:
                rows = (await tx.execute(select(table).where(new).order_by(table.c.id).limit(BATCH))).all()
            if not rows:
                break
            await self._write(name, rows, today)
            last = rows[-1].id
            taken += len(rows)
            await self._note_place(name, last, taken)
            progress(f"new {table.name} rows", len(rows), total - before)
        return taken - before

    async def _note_place(self, name: str, last: int, taken: int) -> None:
        await self._valkey.call("HSET", DB_CURSOR(COUNTS), name, last, f"{name}:taken", taken)

    async def _write(self, name: str, rows: Iterable[Any], today: int) -> None:
        if name == "clg":
            await self._derived.challenges([row.id for row in rows])
        elif name == "post":
            await self._derived.posts([row.id for row in rows], today=today)
        elif name == "reaction":
            await self._derived.standing(list(rows))
        elif name == "tracking":
            await self._derived.contributions(sorted({row.username for row in rows}))

    async def _take_back(self, removals: Iterable[Any], today: int) -> None:
        """What follows from rows that came or went. Who left Plaza is written of already, and has no name here."""
        of: dict[str, list[Any]] = {name: [row for row in removals if row.table_name == name] for name in BY_NAME}
        of |= {name: [row for row in of[name] if row.username] for name in NOTED}
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
        async for rows, _ in paged(self._sql, select(CHALLENGE.c.id).where(ended), CHALLENGE.c.id):
            await self._derived.challenges([row.id for row in rows])
        turned = or_(
            and_(POST.c.day > early - age, POST.c.day <= late - age),
            and_(POST.c.day > early, POST.c.day <= late),
            and_(ended, POST.c.day > early - age),
        )
        join = select(POST.c.id).join(CHALLENGE, POST.c.challenge_id == CHALLENGE.c.id)
        async for rows, total in paged(self._sql, join.where(turned), POST.c.id):
            await self._derived.posts([row.id for row in rows], today=today)
            progress("posts of other days", len(rows), total)
        reacted = (
            select(REACTION)
            .join(POST, REACTION.c.post_id == POST.c.id)
            .join(CHALLENGE, REACTION.c.challenge_id == CHALLENGE.c.id)
            .where(or_(turned, ended))
        )
        async for rows, total in paged(self._sql, reacted, REACTION.c.id):
            await self._write("reaction", rows, today)
            progress("reactions of other days", len(rows), total)

    async def _finish(self, found: Survey, today: int) -> None:
        """The roll is done: say so. Counts and place change together, for the next roll compares them."""
        age = self._derived.max_post_age
        place: list[str | int] = ["day", today]
        for name, ceiling in found.ceilings.items():
            place += [name, ceiling, f"{name}:counted", ceiling, f"{name}:taken", 0]
        counts = [part for pair in found.counts.items() for part in pair]
        params = ("max_post_age", age, "distinct_category", CATEGORIES, "day_index", today % age)
        await self._valkey.call("HSET", RS_PARAM(), *params)
        await self._valkey.multi([("HSET", DB_LEN(), *counts), ("HSET", DB_CURSOR(COUNTS), *place)])
        await self._forget_notes(found)

    async def _forget_notes(self, found: Survey) -> None:
        """What went is taken back; and what came is counted, so that it is missed from now on, whoever deletes it."""
        for notes, rows in ((REMOVAL, found.removals), (ARRIVAL, found.vanished)):
            for ids in batches([row.id for row in rows]):
                async with self._sql.begin() as tx:
                    await tx.execute(delete(notes).where(notes.c.id.in_(ids)))
        counted = or_(*(and_(ARRIVAL.c.table_name == n, ARRIVAL.c.row_id <= found.ceilings[n]) for n in NOTED))
        some = select(ARRIVAL.c.id).where(counted).order_by(ARRIVAL.c.id).limit(BATCH)
        gone = True
        while gone:
            async with self._sql.begin() as tx:
                gone = bool((await tx.execute(delete(ARRIVAL).where(ARRIVAL.c.id.in_(some)))).rowcount)
