"""Reminders of days that are not tracked."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Sequence
from datetime import UTC, datetime, timedelta

import pytest
from sqlalchemy import func, select, update

from plaza.challenges import reminders as module
from plaza.challenges.challenge_deletion import ChallengeDeletion
from plaza.challenges.events import ChallengeReminded
from plaza.challenges.local_hours import local_date, next_hour_ms, time_zones
from plaza.challenges.model import DAY_MS, ChallengeEnded, NewReminder, NotMember
from plaza.challenges.reminders import ChallengeReminders
from plaza.challenges.tables import MEMBER
from plaza.core.errors import Invalid
from plaza.core.sql_events import EVENT_OUTBOX
from plaza.core.user_states import UserState
from tests.challenges.conftest import ANA, BEN, CLEO, ChallengeServices, user

IN_BERLIN = NewReminder(18, "Europe/Berlin")


def _ms(text: str) -> int:
    return round(datetime.fromisoformat(text).replace(tzinfo=UTC).timestamp() * 1000)


def _reminders(services: ChallengeServices, states: UsersWithStates | None = None) -> ChallengeReminders:
    return ChallengeReminders(services.projections, services.tracking, states)


class UsersWithStates:
    """Users, some of them suspended."""

    def __init__(self, names: Sequence[str], suspended: Sequence[str]) -> None:
        self._names, self._suspended = names, suspended

    async def user_states(self, names: Sequence[str]) -> list[UserState | None]:
        return [
            UserState(name, "user", 0, 1 if name in self._suspended else None) if name in self._names else None
            for name in names
        ]

    async def all_usernames(self) -> AsyncIterator[Sequence[str]]:
        yield self._names


async def test_a_day_that_is_not_tracked_is_reminded_once(services: ChallengeServices) -> None:
    reminders = _reminders(services)
    id = await services.joined(BEN, CLEO)
    await services.track(BEN, id)
    saved = (await reminders.save(BEN, id, IN_BERLIN)).reminder
    assert saved is not None
    assert (saved.hour, saved.time_zone, saved.next_at) == (18, "Europe/Berlin", _ms("2023-11-15T17:00"))
    services.clock.set(saved.next_at - 1)
    assert await reminders.send_due(9) == 0
    services.clock.set(saved.next_at + 90_000)
    assert sum(await asyncio.gather(*(_reminders(services).send_due(9) for _ in range(4)))) == 1
    events = select(EVENT_OUTBOX.c.data).where(EVENT_OUTBOX.c.type == ChallengeReminded.type)
    (event,) = await services.sql.fetch_all(events)
    assert event.data == f'{{"challenge":{id},"username":"ben","date":"2023-11-15","streak":1}}'
    for seconds in (-3 * 3600, 3600, 2 * 3600, 5 * 3600):
        services.clock.advance(seconds=seconds)
        assert await reminders.send_due(9) == 0, "also if the clock is set back"
    services.clock.set(_ms("2023-11-16T12:00"))
    await services.track(BEN, id)
    services.clock.set(_ms("2023-11-16T17:00"))
    assert await reminders.send_due(9) == 0, "the day is tracked"
    services.clock.set(_ms("2023-11-17T17:00"))
    assert await reminders.send_due(9) == 1


async def test_another_hour_on_the_same_day_reminds_no_second_time(services: ChallengeServices) -> None:
    reminders = _reminders(services)
    id = await services.joined(BEN)
    await reminders.save(BEN, id, NewReminder(8))
    services.clock.set(_ms("2023-11-15T08:01"))
    assert await reminders.send_due(9) == 1
    await reminders.remove(BEN, id)
    assert (await reminders.remove(BEN, id)).reminder is None
    await reminders.save(BEN, id, NewReminder(20))
    services.clock.set(_ms("2023-11-15T20:01"))
    assert await reminders.send_due(9) == 0
    services.clock.set(_ms("2023-11-16T20:01"))
    assert await reminders.send_due(9) == 1


async def test_a_reminder_of_a_day_that_is_over_is_not_sent(services: ChallengeServices) -> None:
    """No worker ran, or the clock was wrong for a while."""
    reminders = _reminders(services)
    id = await services.joined(BEN)
    await reminders.save(BEN, id, IN_BERLIN)
    services.clock.set(_ms("2023-11-18T09:00"))
    assert await reminders.send_due(9) == 0
    assert await _next_at(services, id) == _ms("2023-11-18T17:00")
    services.clock.set(_ms("2023-12-01T09:00"))
    assert await reminders.send_due(9) == 0
    await reminders.save(BEN, id, IN_BERLIN)
    services.clock.set(_ms("2023-11-18T10:00"))
    assert await reminders.send_due(9) == 0
    services.clock.set(_ms("2023-11-18T17:00"))
    assert await reminders.send_due(9) == 1


async def _next_at(services: ChallengeServices, id: int) -> int | None:
    reminder = (await services.tracking.progress(BEN, id)).reminder
    return None if reminder is None else reminder.next_at


async def test_who_left_was_suspended_or_deleted_is_not_reminded(
    services: ChallengeServices, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "BATCH", 2)
    names = ["ana", "ben", "cleo", "dora", "eli", "finn"]
    reminders = _reminders(services, UsersWithStates(names[:5], suspended=["cleo"]))
    ongoing, ended, deleted = [await services.joined(*map(user, names), days=days) for days in (21, 1, 21)]
    for name in names:
        for id in (ongoing, ended, deleted):
            await reminders.save(user(name), id, NewReminder(21))
    await services.challenges.leave(user("dora"), ongoing)
    await ChallengeDeletion(services.projections).delete(ANA, deleted)
    services.clock.set(_ms("2023-11-15T21:00"))
    await services.track(user("eli"), ongoing)
    assert await reminders.send_due(99) == 2, "ana and ben in the challenge that goes on"
    told = select(MEMBER.c.username).where(MEMBER.c.reminded_ms.is_not(None)).order_by(MEMBER.c.username)
    assert [row.username for row in await services.sql.fetch_all(told)] == ["ana", "ben"]
    waiting = select(func.count().label("n")).where(MEMBER.c.reminder_due_ms.is_not(None))
    assert (await services.sql.fetch_all(waiting))[0].n == 5, "those of ended challenges are removed"


async def test_a_crash_sends_a_reminder_later_and_not_twice(
    services: ChallengeServices, monkeypatch: pytest.MonkeyPatch
) -> None:
    reminders = _reminders(services)
    id = await services.joined(BEN)
    await reminders.save(BEN, id, IN_BERLIN)
    services.clock.set(_ms("2023-11-15T17:00"))

    async def crash(*_: object) -> None:
        raise RuntimeError

    with monkeypatch.context() as patched:
        patched.setattr(module, "add_events", crash)
        with pytest.raises(RuntimeError):
            await reminders.send_due(9)
    assert [await reminders.send_due(9) for _ in range(2)] == [1, 0]


async def test_only_members_of_ongoing_challenges_set_a_reminder(services: ChallengeServices) -> None:
    reminders = _reminders(services)
    id = await services.joined(BEN, days=2)
    for name in ("Mars/Base", "localtime", "", "../UTC", "europe/berlin", "Europe/Berlin\0"):
        with pytest.raises(Invalid) as raised:
            await reminders.save(BEN, id, NewReminder(18, name))
        assert raised.value.extra["field"] == "time_zone"
    for action in (reminders.save(CLEO, id, IN_BERLIN), reminders.remove(CLEO, id)):
        with pytest.raises(NotMember):
            await action
    assert (await services.tracking.progress(BEN, id)).reminder is None
    services.clock.advance(days=2)
    with pytest.raises(ChallengeEnded):
        await reminders.save(BEN, id, IN_BERLIN)


async def test_a_reminder_follows_a_rename_and_is_exported(services: ChallengeServices) -> None:
    id = await services.joined(BEN)
    await _reminders(services).save(BEN, id, IN_BERLIN)
    await services.personal_data.rename("ben", "cleo")
    saved = (await services.tracking.progress(CLEO, id)).reminder
    assert saved is not None
    assert saved.time_zone == "Europe/Berlin"
    (membership,) = (await services.personal_data.export("cleo"))["memberships"]
    assert (membership["reminder_hour"], membership["reminder_due_ms"]) == (18, saved.next_at)
    await services.personal_data.delete("cleo")
    assert await services.sql.fetch_all(select(MEMBER.c.id)) == []


async def test_odd_rows_of_other_programs_stop_no_reminder(services: ChallengeServices) -> None:
    reminders = _reminders(services)
    id = await services.joined(*map(user, ("a", "b", "c", "d")))
    await reminders.save(user("a"), id, NewReminder(8))
    async with services.sql.begin() as tx:
        for name, hour, zone in (("b", 99, "UTC"), ("c", None, None), ("d", 8, "Mars/Base")):
            values = {"reminder_hour": hour, "reminder_time_zone": zone, "reminder_due_ms": _ms("2023-11-15T08:00")}
            await tx.execute(update(MEMBER).where(MEMBER.c.username == name).values(values))
    assert (await services.tracking.progress(user("c"), id)).reminder is None
    services.clock.set(_ms("2023-11-15T08:00"))
    assert await reminders.send_due(9) == 2, "an unknown time zone is UTC"
    assert (await services.tracking.progress(user("b"), id)).reminder is None


@pytest.mark.parametrize("hour", [0, 2, 23])
def test_an_hour_comes_once_on_each_local_day(hour: int) -> None:
    zones = ["Europe/Berlin", "America/New_York", "Pacific/Auckland", "Asia/Kolkata", "Africa/Casablanca", "UTC"]
    assert time_zones() >= set(zones)
    for zone in zones:
        at = _ms("2026-01-01T00:00")
        days = [local_date(at := next_hour_ms(at, hour, zone), zone) for _ in range(370)]
        assert days == [days[0] + timedelta(days=n) for n in range(370)], zone
        assert next_hour_ms(at - 1, hour, zone) == at
        assert next_hour_ms(at, hour, zone) - at <= DAY_MS + 3_600_000
