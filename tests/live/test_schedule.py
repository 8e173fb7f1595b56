"""The public list of events, and viewer tokens for users."""

from __future__ import annotations

import pytest

from plaza.core.clock import ManualClock
from plaza.core.functions import Functions
from plaza.live import keys
from plaza.live.heartbeats import LiveService
from plaza.live.model import EventDeclaration
from plaza.live.recorder import AudienceRecorder
from plaza.live.schedule import EventSchedule
from plaza.live.statistics import AudienceFigures
from plaza.live.viewers import ViewerTokens
from tests.live.conftest import ViewerActions, Web

DAY_MS = 86_400_000


async def test_only_declared_events_are_listed_most_viewers_first(
    functions: Functions, live: LiveService, figures: AudienceFigures, viewers: ViewerActions, clock: ManualClock
) -> None:
    schedule = EventSchedule(functions.valkey, live, figures, clock)
    for event in ("quiet", "loud"):
        await live.declare(event, EventDeclaration(title=f"A {event} one"))
    await viewers.beat("ana", event="loud")
    await viewers.beat("ana", event="undeclared")
    assert [(showing.title, showing.watching) for showing in await schedule.list_events()] == [
        ("A loud one", 1),
        ("A quiet one", 0),
    ]
    assert await schedule.get_event("undeclared") is None
    await viewers.beat("ben", event="over")
    await viewers.leave("ben", event="over")
    assert [(event.id, event.watching) for event in await schedule.list_undeclared()] == [
        ("undeclared", 1),
        ("over", 0),
    ]


async def test_the_next_events_are_listed_first_and_then_the_latest(
    functions: Functions,
    live: LiveService,
    figures: AudienceFigures,
    clock: ManualClock,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    schedule, now = EventSchedule(functions.valkey, live, figures, clock), clock.now_ms()
    starts = {"last week": -7, "next week": 7, "yesterday": -1, "tomorrow": 1}
    for event, days in starts.items():
        await live.declare(event, EventDeclaration(starts_at=now + days * DAY_MS))
    await live.declare("open", EventDeclaration())
    expected = ["tomorrow", "next week", "open", "yesterday", "last week"]
    for shown in (5, 1):
        monkeypatch.setattr("plaza.live.schedule.MAX_EVENTS_SHOWN", shown)
        assert [event.id for event in await schedule.list_events()] == expected[:shown]


async def test_undeclared_events_of_viewers_hide_no_declared_ones(
    functions: Functions,
    live: LiveService,
    figures: AudienceFigures,
    viewers: ViewerActions,
    clock: ManualClock,
    recorder: AudienceRecorder,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("plaza.live.schedule.MAX_EVENTS_READ", 4)
    schedule = EventSchedule(functions.valkey, live, figures, clock)
    for days in (-1, 1, 2, 3):
        await live.declare(f"in {days} days", EventDeclaration(starts_at=clock.now_ms() + days * DAY_MS))
    clock.advance(seconds=1)
    for number in range(5):
        await viewers.beat("eve", event=f"junk {number}")
    expected = ["in 1 days", "in 2 days", "in -1 days"]
    assert [event.id for event in await schedule.list_events()] == expected
    assert len(await schedule.list_undeclared()) == 4
    await functions.valkey.call("DEL", keys.LIVE_DECLARED())  # as before there was this list
    await recorder.purge()
    assert [event.id for event in await schedule.list_events()] == expected


def token_of(web: Web, name: str) -> dict[str, str]:
    tokens = ViewerTokens(web.core.settings.secret("jwt_secret"), web.core.clock)
    return {"authorization": f"Bearer {tokens.issue(name).token}"}


async def test_a_users_viewer_token_counts_as_that_user_and_gives_no_other_access(web: Web) -> None:
    token = token_of(web, "ana")
    assert (await web.beat(token, location="web")).json()["alive"] == 1
    assert (await web.beat(web.user("ana"), location="tv")).json()["alive"] == 1, "both are one viewer"
    assert (await web.client.get("/analytics/events/E1/viewers/active-count", headers=token)).status_code == 401


async def test_a_viewer_token_of_a_revoked_user_is_void(web: Web) -> None:
    token = token_of(web, "ana")
    await web.core.auth.revoke_tokens("ana")
    assert (await web.beat(token, location="web")).status_code == 401
