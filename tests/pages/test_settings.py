"""One's own account: where one is signed in, the password, what is held, and leaving."""

from __future__ import annotations

import re

from tests.pages.conftest import Surfer
from tests.servers import Server

PAGE = "/app/account"


async def _ends(surfer: Surfer) -> list[str]:
    """The forms by which other sessions end."""
    return re.findall(r'formaction="(/app/account/sessions/[^"]+)"', (await surfer.get(PAGE)).text)


async def test_one_signs_out_elsewhere_and_nobody_else_does(ana: Surfer, url: str, guest: Surfer) -> None:
    known = {"username": "ana", "password": "correct horse"}
    assert await _ends(ana) == [], "this browser is not offered"
    async with Surfer(url) as elsewhere:
        await elsewhere.fill("/app/sign-in", page="/app/sign-in", **known)
        (end,) = await _ends(ana)
        await guest.sign_up("eve")
        assert (await guest.fill(end, page=PAGE)).status_code == 303
        assert "Sign out" in (await elsewhere.get("/app")).text, "it is none of eve's"
        piece = await ana.post(end, data=await ana.form(PAGE), headers={"x-fragment": "1"})
        assert 'id="sessions"' in piece.text
        assert "Sign out" not in (await elsewhere.get("/app")).text
    assert await _ends(ana) == []


async def test_the_password_is_changed_by_who_knows_it_and_everywhere_else_is_signed_out(ana: Surfer, url: str) -> None:
    path = f"{PAGE}/password"
    async with Surfer(url) as thief:
        thief.cookies.set("plaza", ana.cookies["plaza"])
        refused = await thief.fill(path, page=PAGE, old="a guess at it", new="battery staple")
        assert refused.status_code == 422
        assert "The old password is wrong." in refused.text
        assert (await ana.fill(path, page=PAGE, old="correct horse", new="short")).status_code == 422
        changed = await ana.fill(path, page=PAGE, old="correct horse", new="battery staple")
        assert "Your password has changed." in (await ana.get(changed.headers["location"])).text
        assert "Sign out" not in (await thief.get("/app")).text
        assert (await thief.get(PAGE)).headers["location"].startswith("/app/sign-in")
        thief.cookies.clear()
        known = {"username": "ana", "password": "battery staple"}
        assert (await thief.fill("/app/sign-in", page="/app/sign-in", **known)).status_code == 303


async def test_one_takes_along_what_is_held_and_leaves_by_the_password(ana: Surfer, server: Server) -> None:
    await ana.fill("/app/posts", content="Here I am")
    held = await ana.get(f"{PAGE}/export")
    assert held.headers["content-disposition"] == 'attachment; filename="plaza-ana.json"'
    assert held.headers.get_list("cache-control") == ["no-store"]
    assert held.json()["username"] == "ana"
    assert "Here I am" in held.text
    refused = await ana.fill(f"{PAGE}/leave", page=PAGE, password="a guess at it")
    assert refused.status_code == 422
    assert "The password is wrong." in refused.text
    gone = await ana.fill(f"{PAGE}/leave", page=PAGE, password="correct horse")
    assert gone.headers["location"] == "/app"
    assert "Max-Age=0" in gone.headers["set-cookie"]
    assert (await ana.get("/app/people/ana")).status_code == 404
    with server.redis_client() as redis_client:
        assert not redis_client.exists("user:ana", "auth:ana", "user:ana:posts")
