"""Account settings: sessions, password, data export and account deletion."""

from __future__ import annotations

import io
import json
import re
from zipfile import ZipFile

from tests.pages.conftest import PageClient
from tests.servers import Server

PAGE = "/app/account"


async def _end_paths(client: PageClient) -> list[str]:
    """The paths of the forms that end other sessions."""
    return re.findall(r'formaction="(/app/account/sessions/[^"]+/end)"', (await client.get(PAGE)).text)


async def test_users_end_their_own_sessions_only(ana: PageClient, url: str, guest: PageClient) -> None:
    credentials = {"username": "ana", "password": "correct horse"}
    assert await _end_paths(ana) == [], "the current session has no button"
    async with PageClient(url) as other_browser:
        await other_browser.submit("/app/sign-in", page="/app/sign-in", **credentials)
        (end,) = await _end_paths(ana)
        await guest.sign_up("eve")
        assert (await guest.submit(end, page=PAGE)).status_code == 303
        assert "Sign out" in (await other_browser.get("/app")).text, "eve cannot end it"
        fragment = await ana.post(end, data=await ana.hidden_fields(PAGE), headers={"x-fragment": "1"})
        assert 'id="sessions"' in fragment.text
        assert "Sign out" not in (await other_browser.get("/app")).text
    assert await _end_paths(ana) == []


async def test_a_page_shows_programs_too_and_ends_all_others(ana: PageClient, url: str) -> None:
    credentials = {"username": "ana", "password": "correct horse"}
    program = (await ana.post("/auth/login", json=credentials, headers={"user-agent": "curl/8.5.0"})).json()
    async with PageClient(url) as other_browser:
        await other_browser.submit("/app/sign-in", page="/app/sign-in", **credentials)
        page = (await ana.get(PAGE)).text
        assert "curl" in page
        assert "127.0.0.0" in page
        assert len(await _end_paths(ana)) == 2
        assert (await ana.submit(f"{PAGE}/sessions/end-others", page=PAGE)).status_code == 303
        assert "Sign out" not in (await other_browser.get("/app")).text
    own = {"authorization": f"Bearer {program['access_token']}"}
    assert (await ana.get("/whoami", headers=own)).status_code == 401
    assert await _end_paths(ana) == []
    assert "Sign out" in (await ana.get("/app")).text


async def test_a_password_change_needs_the_old_one_and_ends_other_sessions(ana: PageClient, url: str) -> None:
    path = f"{PAGE}/password"
    async with PageClient(url) as thief:
        thief.cookies.set("plaza", ana.cookies["plaza"])
        refused = await thief.submit(path, page=PAGE, old="a guess at it", new="battery staple")
        assert refused.status_code == 422
        assert "The old password is wrong." in refused.text
        assert (await ana.submit(path, page=PAGE, old="correct horse", new="short")).status_code == 422
        changed = await ana.submit(path, page=PAGE, old="correct horse", new="battery staple")
        assert "Your password has been changed." in (await ana.get(changed.headers["location"])).text
        assert "Sign out" not in (await thief.get("/app")).text
        assert (await thief.get(PAGE)).headers["location"].startswith("/app/sign-in")
        thief.cookies.clear()
        credentials = {"username": "ana", "password": "battery staple"}
        assert (await thief.submit("/app/sign-in", page="/app/sign-in", **credentials)).status_code == 303


async def test_users_export_their_data_and_delete_their_account(ana: PageClient, server: Server) -> None:
    await ana.submit("/app/posts", content="Here I am")
    export = await ana.get(f"{PAGE}/export")
    assert export.headers["content-disposition"] == 'attachment; filename="plaza-ana.json"'
    assert export.headers.get_list("cache-control") == ["no-store"]
    assert export.json()["username"] == "ana"
    assert "Here I am" in export.text
    archive = await ana.get(f"{PAGE}/export.zip")
    assert archive.headers["content-disposition"] == 'attachment; filename="plaza-ana.zip"'
    assert json.loads(ZipFile(io.BytesIO(archive.content)).read("data.json"))["username"] == "ana"
    assert f'href="{PAGE}/export.zip"' in (await ana.get(PAGE)).text
    refused = await ana.submit(f"{PAGE}/leave", page=PAGE, password="a guess at it")
    assert refused.status_code == 422
    assert "The password is wrong." in refused.text
    deleted = await ana.submit(f"{PAGE}/leave", page=PAGE, password="correct horse")
    assert deleted.headers["location"] == "/app"
    assert "Max-Age=0" in deleted.headers["set-cookie"]
    assert (await ana.get("/app/people/ana")).status_code == 404
    with server.redis_client() as redis_client:
        assert not redis_client.exists("user:ana", "auth:ana", "user:ana:posts")
