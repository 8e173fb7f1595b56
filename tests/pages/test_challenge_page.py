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
    wrong = await ana.submit(f"{path}/reminder", page=path, hour="9", time_zone="Mars/Base")
    assert (wrong.status_code, "Unknown time zone" in wrong.text) == (422, True)
    assert 'value="Mars/Base"' in wrong.text
    assert '<option value="9" selected>' in wrong.text
    assert "Reminder at 07:00, Asia/Kolkata" in wrong.text, "the saved one"
    script = {"x-fragment": "1", "accept": "text/html"}
    form = {**await ana.hidden_fields(path, f"{path}/reminder"), "hour": "9", "time_zone": "Mars/Base"}
    told = await ana.post(f"{path}/reminder", data=form, headers=script)
    assert "Unknown time zone" in told.json()["detail"]
    await ana.submit(f"{path}/reminder", page=path, on="0")
    assert "Remind me" in (await ana.get(path)).text
    board = (await guest.get(path)).text.partition('id="challenge-leaders"')[2]
    assert re.search(r'<bdi>ana</bdi></b></a> <span class="soft"><span class="n">1</span> day<', board)
    await guest.sign_up("ben")
    await guest.submit("/app/people/ana/block", page="/app/people/ana", on="1")
    board = (await guest.get(path)).text.partition('id="challenge-leaders"')[2]
    assert "<bdi>ana</bdi>" not in board


async def test_an_invitation_takes_a_name_as_it_is_written_everywhere(ana: PageClient, guest: PageClient) -> None:
    await guest.sign_up("eve")
    new = {"title": "Walk", "category": "1", "duration": "60"}
    path = (await ana.submit("/app/challenges", page="/app/challenges/new", **new)).headers["location"]
    invitations = f"{path}/invitations"
    for name in ("eve!", "@", "nemo"):
        refused = await ana.submit(invitations, page=invitations, username=name)
        assert (refused.status_code, 'role="alert"' in refused.text) == (404 if name == "nemo" else 422, True), name
        assert f'value="{name}"' in refused.text, name
    assert (await ana.submit(invitations, page=invitations, username=" @eve ")).status_code == 303
    assert 'href="/app/people/eve"' in (await ana.get(invitations)).text
