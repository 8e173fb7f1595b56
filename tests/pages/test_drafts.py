"""A form that is sent by the browser itself and is refused: what was written in it comes back, to whoever wrote it."""

from __future__ import annotations

from html.parser import HTMLParser
from pathlib import Path

import httpx
import pytest

from plaza.app import Plaza, running
from plaza.core.rate_limits import POLICIES, Policy, Quota
from plaza.core.settings import Settings
from plaza.demo.service import Demo
from plaza.sessions.service import Sessions
from plaza.web.demo import DemoAccount
from tests.http_servers import serving
from tests.pages.conftest import Surfer
from tests.servers import Server, running_server

OWN = {"sec-fetch-site": "same-origin"}
TEXT = "\n  Half a \"thought\" </textarea><script>alert(1)</script> & 'more'\n\nمرحبا 👩\u200d👧"


class Form(HTMLParser):
    """The form of a page that goes to an address, with what a browser would send of it."""

    def __init__(self, page: str, action: str) -> None:
        super().__init__()
        self.fields: dict[str, str] = {}
        self._action, self._inside, self._area = action, False, ""
        self.feed(page)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        given = {name: value or "" for name, value in attrs}
        if tag == "form":
            self._inside = given.get("action") == self._action
        elif self._inside and tag in ("input", "textarea"):
            self.fields[given["name"]] = given.get("value", "")
            self._area = given["name"] if tag == "textarea" else ""

    def handle_endtag(self, tag: str) -> None:
        if tag == "textarea" and self._area:
            self.fields[self._area] = self.fields[self._area].removeprefix("\n")
            self._area = ""
        self._inside = self._inside and tag != "form"

    def handle_data(self, data: str) -> None:
        if self._area:
            self.fields[self._area] += data


async def send(surfer: Surfer, path: str, fields: dict[str, str], headers: dict[str, str] = OWN) -> httpx.Response:
    return await surfer.post(path, data=fields, headers=headers)


async def end_session(surfer: Surfer, plaza: Plaza) -> None:
    await plaza.get(Sessions).logout(surfer.cookies["plaza"])


@pytest.mark.parametrize(
    ("path", "written"),
    [
        ("/app/posts", {"content": TEXT}),
        ("/app/articles", {"title": 'A "link"', "link": "https://example.org/?a=1&b=2", "groups": "news"}),
        ("/app/profile", {"display_name": "Ana <3", "bio": TEXT, "links": ""}),
    ],
)
async def test_what_was_written_over_the_end_of_a_session_is_there_after_signing_in(
    ana: Surfer, plaza: Plaza, path: str, written: dict[str, str]
) -> None:
    form = await ana.form("/app")
    await end_session(ana, plaza)
    door = await send(ana, path, {**form, **written})
    assert door.status_code == 403
    assert "<script>alert" not in door.text
    fields = Form(door.text, "/app/sign-in").fields
    mistyped = await send(ana, "/app/sign-in", {**fields, "username": "ana", "password": "something"})
    assert mistyped.status_code == 422
    fields = Form(mistyped.text, "/app/sign-in").fields
    back = await send(ana, "/app/sign-in", {**fields, "username": "ana", "password": "correct horse"})
    assert back.status_code == 200
    assert "<script>alert" not in back.text
    again = Form(back.text, path).fields
    assert {name: again[name] for name in written} == written
    reloaded = await send(ana, "/app/sign-in", {**fields, "username": "ana", "password": "correct horse"})
    assert Form(reloaded.text, path).fields == again
    sent = await send(ana, path, again)
    assert sent.status_code == 303, sent.text


async def test_a_demo_account_gets_its_text_back_too(
    ana: Surfer, plaza: Plaza, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def accounts(demo: Demo, host: str) -> list[DemoAccount]:
        return [DemoAccount("ana", "Ana", "user")]

    monkeypatch.setattr(Demo, "accounts", accounts)
    form = await ana.form("/app")
    await end_session(ana, plaza)
    door = await send(ana, "/app/posts", {**form, "content": TEXT})
    back = await send(ana, "/app/sign-in/as", {**Form(door.text, "/app/sign-in").fields, "as": "ana"})
    assert Form(back.text, "/app/posts").fields["content"] == TEXT


async def test_who_has_signed_in_elsewhere_meanwhile_sends_it_from_there(ana: Surfer) -> None:
    form = await ana.form("/app")
    await ana.fill("/app/sign-in", page="/app/sign-in", username="ana", password="correct horse")
    stale = await send(ana, "/app/posts", {**form, "content": TEXT})
    assert stale.status_code == 403
    assert (await send(ana, "/app/posts", Form(stale.text, "/app/posts").fields)).status_code == 303


async def test_what_came_too_fast_or_while_valkey_is_away_is_not_lost(tmp_path: Path) -> None:
    with running_server() as valkey:
        settings = Settings(data_dir=tmp_path, valkey_url=valkey.url)
        async with running(settings) as plaza, serving(plaza.app) as url, Surfer(url) as ana:
            await ana.sign_up("ana")
            vars(plaza.core.limiter)["_policies"] = {**POLICIES, "write": Policy(Quota(1, 3_600), Quota(1, 3_600))}
            form = await ana.form("/app")
            await ana.post("/app/posts", data={**form, "content": "one"})
            for expected in (429, 503):
                refused = await send(ana, "/app/posts", {**form, "content": TEXT})
                assert refused.status_code == expected
                assert Form(refused.text, "/app/posts").fields == {**form, "content": TEXT}, "the very same"
                assert valkey.process is not None
                valkey.process.kill()
                valkey.process.wait()


async def test_no_other_site_puts_words_before_anybody(ana: Surfer, plaza: Plaza) -> None:
    form = await ana.form("/app")
    await end_session(ana, plaza)
    for headers in ({}, {"sec-fetch-site": "cross-site"}, {"origin": "https://evil.example"}, {"origin": "http://["}):
        for fields in (form, {**form, "csrf": "0" * 32}):
            answer = await send(ana, "/app/posts", {**fields, "content": "Buy my book"}, headers)
            assert answer.status_code < 500
            assert "Buy my book" not in answer.text, headers


async def test_a_password_is_never_shown_again(ana: Surfer, plaza: Plaza) -> None:
    form = await ana.form("/app")
    await end_session(ana, plaza)
    for fields in ({"old": "correct horse", "new": "battery staple"}, {"password": "correct horse", "bio": "Hello"}):
        answer = await send(ana, "/app/account/password", {**form, **fields})
        assert answer.status_code == 303
        assert answer.headers["location"].startswith("/app/sign-in?next=")


async def test_a_script_is_told_in_its_own_way(ana: Surfer, plaza: Plaza) -> None:
    form = await ana.form("/app")
    await end_session(ana, plaza)
    answer = await send(ana, "/app/posts", {**form, "content": TEXT}, {**OWN, "x-fragment": "1"})
    assert (answer.status_code, answer.json()["code"]) == (401, "unauthenticated")


async def test_what_passes_by_itself_can_be_asked_for_again(server: Server, tmp_path: Path) -> None:
    settings = Settings(data_dir=tmp_path, valkey_url=server.url)
    async with running(settings) as plaza, serving(plaza.app) as url, Surfer(url) as guest:
        vars(plaza.core.limiter)["_policies"] = {**POLICIES, "read": Policy(Quota(1, 3_600), Quota(1, 3_600))}
        await guest.get("/app")
        refused = await guest.get("/app/articles?order=time")
    assert refused.status_code == 429
    assert 'href="/app/articles?order=time">Try again' in refused.text
