"""A refused form that the browser itself has sent: the user gets the text back."""

from __future__ import annotations

from html.parser import HTMLParser
from pathlib import Path

import httpx
import pytest

from plaza.app import Plaza, running
from plaza.core.rate_limits import POLICIES, Policy, Quota
from plaza.core.settings import Settings
from plaza.demo.lifecycle import Demo
from plaza.sessions.service import Sessions
from plaza.web.demo_accounts import DemoAccount
from tests.http_servers import serving
from tests.pages.conftest import PageClient
from tests.servers import Server, running_server

SAME_ORIGIN = {"sec-fetch-site": "same-origin"}
TEXT = "\n  Half a \"thought\" </textarea><script>alert(1)</script> & 'more'\n\nمرحبا 👩\u200d👧"


class FormFields(HTMLParser):
    """The fields of the form with a certain action, as a browser would send them."""

    def __init__(self, page: str, action: str) -> None:
        super().__init__()
        self.fields: dict[str, str] = {}
        self._action, self._inside, self._area = action, False, ""
        self.feed(page)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        attributes = {name: value or "" for name, value in attrs}
        if tag == "form":
            self._inside = attributes.get("action") == self._action
        elif self._inside and tag in ("input", "textarea"):
            self.fields[attributes["name"]] = attributes.get("value", "")
            self._area = attributes["name"] if tag == "textarea" else ""

    def handle_endtag(self, tag: str) -> None:
        if tag == "textarea" and self._area:
            self.fields[self._area] = self.fields[self._area].removeprefix("\n")
            self._area = ""
        self._inside = self._inside and tag != "form"

    def handle_data(self, data: str) -> None:
        if self._area:
            self.fields[self._area] += data


async def post_form(
    client: PageClient, path: str, fields: dict[str, str], headers: dict[str, str] = SAME_ORIGIN
) -> httpx.Response:
    return await client.post(path, data=fields, headers=headers)


async def end_session(client: PageClient, plaza: Plaza) -> None:
    await plaza.get(Sessions).logout(client.cookies["plaza"])


@pytest.mark.parametrize(
    ("path", "written"),
    [
        ("/app/posts", {"content": TEXT}),
        ("/app/articles", {"title": 'A "link"', "link": "https://example.org/?a=1&b=2", "groups": "news"}),
        ("/app/profile", {"display_name": "Ana <3", "bio": TEXT, "links": ""}),
    ],
)
async def test_text_survives_the_end_of_a_session_and_is_there_after_sign_in(
    ana: PageClient, plaza: Plaza, path: str, written: dict[str, str]
) -> None:
    form = await ana.hidden_fields("/app")
    await end_session(ana, plaza)
    sign_in_page = await post_form(ana, path, {**form, **written})
    assert sign_in_page.status_code == 403
    assert "<script>alert" not in sign_in_page.text
    fields = FormFields(sign_in_page.text, "/app/sign-in").fields
    wrong_password = await post_form(ana, "/app/sign-in", {**fields, "username": "ana", "password": "something"})
    assert wrong_password.status_code == 422
    fields = FormFields(wrong_password.text, "/app/sign-in").fields
    draft_page = await post_form(ana, "/app/sign-in", {**fields, "username": "ana", "password": "correct horse"})
    assert draft_page.status_code == 200
    assert "<script>alert" not in draft_page.text
    restored = FormFields(draft_page.text, path).fields
    assert {name: restored[name] for name in written} == written
    reloaded = await post_form(ana, "/app/sign-in", {**fields, "username": "ana", "password": "correct horse"})
    assert FormFields(reloaded.text, path).fields == restored
    sent = await post_form(ana, path, restored)
    assert sent.status_code == 303, sent.text


async def test_text_survives_sign_in_to_a_demo_account(
    ana: PageClient, plaza: Plaza, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def accounts(demo: Demo, host: str) -> list[DemoAccount]:
        return [DemoAccount("ana", "Ana", "user")]

    monkeypatch.setattr(Demo, "accounts", accounts)
    form = await ana.hidden_fields("/app")
    await end_session(ana, plaza)
    sign_in_page = await post_form(ana, "/app/posts", {**form, "content": TEXT})
    draft_page = await post_form(
        ana, "/app/sign-in/as", {**FormFields(sign_in_page.text, "/app/sign-in").fields, "as": "ana"}
    )
    assert FormFields(draft_page.text, "/app/posts").fields["content"] == TEXT


async def test_text_can_be_sent_from_the_new_session_after_sign_in_in_another_tab(ana: PageClient) -> None:
    form = await ana.hidden_fields("/app")
    await ana.submit("/app/sign-in", page="/app/sign-in", username="ana", password="correct horse")
    stale = await post_form(ana, "/app/posts", {**form, "content": TEXT})
    assert stale.status_code == 403
    assert (await post_form(ana, "/app/posts", FormFields(stale.text, "/app/posts").fields)).status_code == 303


async def test_text_survives_a_rate_limit_and_an_unavailable_valkey(tmp_path: Path) -> None:
    with running_server() as valkey:
        settings = Settings(data_dir=tmp_path, valkey_url=valkey.url)
        async with running(settings) as plaza, serving(plaza.app) as url, PageClient(url) as ana:
            await ana.sign_up("ana")
            vars(plaza.core.limiter)["_policies"] = {**POLICIES, "write": Policy(Quota(1, 3_600), Quota(1, 3_600))}
            form = await ana.hidden_fields("/app")
            await ana.post("/app/posts", data={**form, "content": "one"})
            for expected in (429, 503):
                refused = await post_form(ana, "/app/posts", {**form, "content": TEXT})
                assert refused.status_code == expected
                assert FormFields(refused.text, "/app/posts").fields == {**form, "content": TEXT}, "unchanged"
                assert valkey.process is not None
                valkey.process.kill()
                valkey.process.wait()


async def test_a_form_of_another_site_is_not_shown(ana: PageClient, plaza: Plaza) -> None:
    form = await ana.hidden_fields("/app")
    await end_session(ana, plaza)
    for headers in ({}, {"sec-fetch-site": "cross-site"}, {"origin": "https://evil.example"}, {"origin": "http://["}):
        for fields in (form, {**form, "csrf": "0" * 32}):
            response = await post_form(ana, "/app/posts", {**fields, "content": "Buy my book"}, headers)
            assert response.status_code < 500
            assert "Buy my book" not in response.text, headers


async def test_a_password_is_never_shown_again(ana: PageClient, plaza: Plaza) -> None:
    form = await ana.hidden_fields("/app")
    await end_session(ana, plaza)
    for fields in ({"old": "correct horse", "new": "battery staple"}, {"password": "correct horse", "bio": "Hello"}):
        response = await post_form(ana, "/app/account/password", {**form, **fields})
        assert response.status_code == 303
        assert response.headers["location"].startswith("/app/sign-in?next=")


async def test_a_script_gets_a_problem_document(ana: PageClient, plaza: Plaza) -> None:
    form = await ana.hidden_fields("/app")
    await end_session(ana, plaza)
    response = await post_form(ana, "/app/posts", {**form, "content": TEXT}, {**SAME_ORIGIN, "x-fragment": "1"})
    assert (response.status_code, response.json()["code"]) == (401, "unauthenticated")


async def test_a_temporary_error_offers_to_try_again(server: Server, tmp_path: Path) -> None:
    settings = Settings(data_dir=tmp_path, valkey_url=server.url)
    async with running(settings) as plaza, serving(plaza.app) as url, PageClient(url) as guest:
        vars(plaza.core.limiter)["_policies"] = {**POLICIES, "read": Policy(Quota(1, 3_600), Quota(1, 3_600))}
        await guest.get("/app")
        refused = await guest.get("/app/articles?order=time")
    assert refused.status_code == 429
    assert 'href="/app/articles?order=time">Try again' in refused.text
    assert "Too many requests in a short time. Try again in 60 min." in refused.text
