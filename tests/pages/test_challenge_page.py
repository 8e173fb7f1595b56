"""The page of a challenge: progress, calendar, posts and leaderboard."""

from __future__ import annotations

import re

from tests.pages.conftest import PageClient


async def test_a_challenge_shows_progress_calendar_and_leaderboard(ana: PageClient, guest: PageClient) -> None:
    new = {"title": "Walk", "category": "1", "duration": "60", "is_public": "1"}
    path = (await ana.submit("/app/challenges", page="/app/challenges/new", **new)).headers["location"]
    empty = (await guest.get(path)).text
    assert "No member has tracked a day yet." in empty
    assert 'class="calendar"' not in empty
    for action in ("join", "track"):
        await ana.submit(f"{path}/{action}", page=path, on="1")
    page = (await ana.get(path)).text
    assert '<b class="n">1</b> of 60 days tracked' in page
    days = re.findall(r'<li class="([^"]*)">\d+</li>', page)
    assert len(days) == 35, "five weeks of a long challenge"
    assert sum("tracked" in day for day in days) == 1
    await ana.submit(f"{path}/reminder", page=path, hour="7", time_zone="Asia/Kolkata")
    assert "Reminder at 07:00, Asia/Kolkata" in (await ana.get(path)).text
    wrong = await ana.submit(f"{path}/reminder", page=path, hour="7", time_zone="Mars/Base")
    assert (wrong.status_code, "Unknown time zone" in wrong.text) == (422, True)
    await ana.submit(f"{path}/reminder", page=path, on="0")
    assert "Remind me" in (await ana.get(path)).text
    board = (await guest.get(path)).text.partition('id="challenge-leaders"')[2]
    assert re.search(r'<bdi>ana</bdi></b></a> <span class="soft"><span class="n">1</span> day<', board)
    await guest.sign_up("ben")
    await guest.submit("/app/people/ana/block", page="/app/people/ana", on="1")
    board = (await guest.get(path)).text.partition('id="challenge-leaders"')[2]
    assert "<bdi>ana</bdi>" not in board
