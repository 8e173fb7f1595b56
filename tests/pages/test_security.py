"""What a page never does: run what people wrote, act for other sites, send people elsewhere."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest

from plaza.app import Plaza, running
from plaza.core.auth import Actor
from plaza.core.rate_limits import POLICIES, Policy, Quota
from plaza.core.settings import Settings
from plaza.demo.service import Demo
from plaza.shop.items import Items
from plaza.shop.model import NewItem
from plaza.social.accounts import Accounts
from plaza.social.model import PasswordChange
from plaza.web.demo import DemoAccount
from plaza.web.security import local
from tests.http_servers import serving
from tests.pages.conftest import Elements, Surfer
from tests.servers import Server

EVIL = (
    "<script>alert(1)</script> <img src=x onerror=alert(1)> \"'><svg/onload=alert(1)> {{ 7*7 }} {% raw %} "
    'javascript:alert(1) [x](javascript:alert(1)) https://example.org/"onmouseover=alert(1) '
    "https://example.org/<b> #a<b> @ana</a> "
    "\u202egnp.exe\u202c \u2066x\u2069 z\u0335\u0336\u0337 \ufeff\u200b 👩‍👩‍👧 &lt;b&gt;"
)


async def test_what_people_write_stays_text(ana: Surfer) -> None:
    await ana.fill("/app/posts", content=EVIL)
    plain = Elements((await ana.get("/app/sign-in")).text)
    page = Elements((await ana.get("/app")).text)
    assert {tag for tag, _ in page.found} <= {tag for tag, _ in plain.found} | {
        "article",
        "time",
        "bdi",
        "textarea",
        "use",
    } | {"symbol", "circle", "div"}
    assert [a["src"] for tag, a in page.found if tag == "script"] == [
        a["src"] for tag, a in plain.found if tag == "script"
    ]
    assert all(not name.startswith("on") and name != "style" for _, attributes in page.found for name in attributes)
    links = {attributes["href"] for tag, attributes in page.found if tag == "a"}
    assert all(link.startswith(("/app", "https://example.org/", "#")) for link in links), links
    words = "".join(page.words)
    assert "<script>alert(1)</script> <img src=x onerror=alert(1)>" in words
    assert "{{ 7*7 }} {% raw %}" in words
    assert "&lt;b&gt;" in words, "what was typed as an entity is shown as typed"


async def test_no_page_runs_inline_code_or_asks_others(ana: Surfer) -> None:
    for path in ("/app", "/app/sign-in", "/app/nowhere"):
        answer = await ana.get(path)
        policy = answer.headers["content-security-policy"]
        assert policy.startswith("default-src 'none'; script-src 'self'; style-src 'self';")
        assert "unsafe" not in policy
        assert answer.headers["cache-control"].startswith(("private", "no-store"))
        page = Elements(answer.text)
        assert not [tag for tag, attributes in page.found if tag == "style" or "style" in attributes]
        assert all("src" in attributes for tag, attributes in page.found if tag == "script")


@pytest.mark.parametrize(
    "change",
    [{"csrf": ""}, {"csrf": "0" * 32}, {"csrf": "é"}],
    ids=["none", "made up", "not even ascii"],
)
async def test_a_form_without_our_mark_changes_nothing(ana: Surfer, change: dict[str, str]) -> None:
    answer = await ana.fill("/app/posts", content="hello", **change)
    assert answer.status_code == 403
    assert "earlier session" in answer.text
    assert "hello" not in (await ana.get("/app")).text


async def test_a_mark_is_worth_nothing_in_another_session(ana: Surfer, url: str) -> None:
    async with Surfer(url) as bob:
        await bob.sign_up("bob")
        stolen = await bob.form("/app")
    assert (await ana.post("/app/posts", data={**stolen, "content": "hello"})).status_code == 403


@pytest.mark.parametrize(
    "headers",
    [
        {"sec-fetch-site": "cross-site"},
        {"sec-fetch-site": "same-site"},
        {"origin": "https://evil.example"},
        {"origin": "null"},
    ],
    ids=str,
)
async def test_another_sites_page_may_not_send_our_forms(ana: Surfer, headers: dict[str, str]) -> None:
    form = await ana.form("/app")
    answer = await ana.post("/app/posts", data={**form, "content": "hello"}, headers=headers)
    assert answer.status_code == 403
    own = {"origin": str(ana.base_url).rstrip("/"), "sec-fetch-site": "same-origin"}
    assert (await ana.post("/app/posts", data={**form, "content": "hello"}, headers=own)).status_code == 303


@pytest.mark.parametrize(
    "wanted",
    ["//evil.example", "/\\evil.example", "https://evil.example", "javascript:alert(1)", "/app\\@evil", "/application",
     "/app/\r\nset-cookie: a=b", "\t//evil.example", "/docs", "", "/app/../docs",
     "/app/people/%2E./..", "/app/.."],
)  # fmt: skip
def test_what_is_no_page_of_ours_is_nowhere_to_go(wanted: str) -> None:
    assert local(wanted) == "/app"


async def test_nobody_is_sent_elsewhere(guest: Surfer) -> None:
    evil = "//evil.example"
    assert 'value="//evil' not in (await guest.get(f"/app/sign-up?next={evil}")).text
    person = {"username": "ana", "password": "correct horse", "next": evil}
    for path in ("/app/sign-up", "/app/sign-in"):
        assert (await guest.fill(path, page=path, **person)).headers["location"] == "/app"
    posted = await guest.fill("/app/posts", content="hello", next=evil)
    assert posted.headers["location"].startswith("/app/posts/")


@pytest.mark.parametrize("wanted", ["/app", "/app?cursor=a/../b", "/app/people/..dots..", "/app/events/a%2Fb/#x"])
def test_everybody_is_sent_to_any_page_of_ours(wanted: str) -> None:
    assert local(wanted) == wanted


async def test_who_signs_in_comes_back_to_where_they_were(guest: Surfer) -> None:
    answer = await guest.post("/app/posts", data={"content": "hello", "next": "/app?cursor=x"})
    assert answer.headers["location"] == "/app/sign-in?next=%2Fapp%3Fcursor%3Dx"
    page = await guest.form(answer.headers["location"])
    assert page["next"] == "/app?cursor=x"
    await guest.sign_up("ana")
    for path, action in (("articles/new", "articles"), ("challenges/new", "challenges"), ("profile", "profile")):
        text = (await guest.get(f"/app/{path}")).text
        own = text.partition(f'action="/app/{action}">')[2].partition("</form>")[0]
        assert f'name="next" value="/app/{path}"' in own, "when the session ends over a form"


async def test_the_address_of_a_picture_reads_as_it_leads(ana: Surfer) -> None:
    await ana.fill("/app/posts", content="look", media_url="https://a.example/\u202egpj.exe")
    page = Elements((await ana.get("/app")).text)
    assert "https://a.example/%E2%80%AEgpj.exe" in page.words
    assert not any("\u202e" in words for words in page.words)


@pytest.mark.parametrize("page", ["/app/sign-in", "/app/sign-up"])
async def test_who_changes_from_signing_in_to_joining_still_comes_back(guest: Surfer, page: str) -> None:
    text = (await guest.get(f"{page}?next=/app/articles")).text
    assert re.findall(r'href="(/app/sign-(?:in|up)[^"]*)"', text) == [
        "/app/sign-in?next=/app/articles",
        "/app/sign-up?next=/app/articles",
        ("/app/sign-up" if page == "/app/sign-in" else "/app/sign-in") + "?next=/app/articles",
    ]


async def test_browsers_keep_no_page_that_shows_a_person(guest: Surfer, ana: Surfer) -> None:
    for path in ("/app", "/app/bookmarks", "/app/shop/cart"):
        assert (await ana.get(path)).headers.get_list("cache-control") == ["no-store"]
    assert (await guest.get("/app/shop/cart")).headers.get_list("cache-control") == ["private, no-cache"]


async def test_what_a_proxy_passes_on_is_not_taken_for_a_visitor_from_here(
    guest: Surfer, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def accounts(demo: Demo, host: str) -> list[DemoAccount]:
        return [DemoAccount("ana", "Ana", "user")] if host else []

    monkeypatch.setattr(Demo, "accounts", accounts)
    form = {**await guest.form("/app/sign-in"), "as": "ana"}
    for name in ("Forwarded", "Via", "X-Forwarded-For", "X-Forwarded-Host", "X-Real-IP"):
        passed = {name: "for=203.0.113.9"}
        assert "Ana" not in (await guest.get("/app/sign-in", headers=passed)).text
        assert (await guest.post("/app/sign-in/as", data=form, headers=passed)).status_code == 404
    assert "Ana" in (await guest.get("/app/sign-in")).text


async def test_a_demo_account_opens_without_a_password_and_no_other(
    guest: Surfer, ana: Surfer, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def accounts(demo: Demo, host: str) -> list[DemoAccount]:
        return [DemoAccount("ana", "Ana <b>", "user")]

    assert "Look around" not in (await guest.get("/app/sign-in")).text
    monkeypatch.setattr(Demo, "accounts", accounts)
    assert "Ana &lt;b&gt;" in (await guest.get("/app/sign-in")).text
    assert (await guest.fill("/app/sign-in/as", page="/app/sign-in", **{"as": "bob"})).status_code == 404
    assert (await guest.fill("/app/sign-in/as", page="/app/sign-in", **{"as": "ana"})).status_code == 303
    assert "Sign out" in (await guest.get("/app")).text


async def test_who_only_knocks_leaves_nothing_behind(guest: Surfer, server: Server) -> None:
    with server.redis_client() as redis_client:
        before = set(redis_client.scan_iter("*"))
        for path in ("/app/sign-in", "/app/sign-up", "/app", "/app/articles"):
            assert (await guest.get(path)).status_code == 200
        assert set(redis_client.scan_iter("*")) - before == set()
    await guest.sign_up("ana")


async def test_behind_https_the_cookie_is_for_this_host_alone(server: Server, tmp_path: Path) -> None:
    settings = Settings(data_dir=tmp_path, valkey_url=server.url, trusted_proxies=("127.0.0.1",))
    async with running(settings) as plaza, serving(plaza.app) as url, Surfer(url) as surfer:
        answer = await surfer.get("/app/sign-in", headers={"x-forwarded-proto": "https"})
    cookie = answer.headers["set-cookie"]
    assert cookie.startswith("__Host-plaza=")
    assert {"Path=/", "HttpOnly", "Secure", "SameSite=Lax"} <= set(cookie.split("; "))


async def test_signing_out_ends_the_session(ana: Surfer) -> None:
    cookie = ana.cookies["plaza"]
    await ana.fill("/app/sign-out")
    ana.cookies.set("plaza", cookie)
    assert "Sign out" not in (await ana.get("/app")).text


async def test_a_wrong_password_says_so_and_keeps_the_name(guest: Surfer) -> None:
    answer = await guest.fill("/app/sign-in", page="/app/sign-in", username="ana", password="wrong")
    assert answer.status_code == 422
    assert 'value="ana"' in answer.text


async def test_forms_count_against_the_person_whose_session_it_is(server: Server, tmp_path: Path) -> None:
    settings = Settings(data_dir=tmp_path, valkey_url=server.url)
    async with running(settings) as plaza, serving(plaza.app) as url, Surfer(url) as ana, Surfer(url) as bob:
        await ana.sign_up("ana")
        await bob.sign_up("bob")
        few = Policy(user=Quota(2, 60), address=Quota(100, 60))
        vars(plaza.core.limiter)["_policies"] = {**POLICIES, "write": few}
        sent = [await ana.fill("/app/posts", content=f"{number}") for number in range(3)]
        assert [answer.status_code for answer in sent] == [303, 303, 429]
        assert "Wait a moment and try again." in sent[-1].text
        assert sent[1].headers["ratelimit"].startswith('"write";r=0;')
        assert (await bob.fill("/app/posts", content="hello")).status_code == 303, "from the same address"
        assert (await ana.get("/app")).status_code == 200
        assert (await ana.fill("/app/sign-out")).status_code == 303


async def test_a_new_password_ends_every_session_and_leaves_the_cart(ana: Surfer, plaza: Plaza, url: str) -> None:
    item = await plaza.get(Items).create(NewItem("Lamp", "Bright.", "9.00", 3), "one")
    await ana.fill(f"/app/shop/cart/{item.id}", page=f"/app/shop/items/{item.id}", qty="2")
    accounts = plaza.get(Accounts)
    async with Surfer(url) as thief:
        for change in (
            accounts.change_password(Actor("ana", "user"), PasswordChange("correct horse", "battery staple")),
            accounts.give_password("ana", "battery staple"),
        ):
            thief.cookies.set("plaza", ana.cookies["plaza"])
            assert "Sign out" in (await thief.get("/app")).text
            await change
            assert "Sign out" not in (await thief.get("/app")).text
            thief.cookies.clear()
            await ana.fill("/app/sign-in", page="/app/sign-in", username="ana", password="battery staple")
    assert "Lamp" in (await ana.get("/app/shop/cart")).text


async def test_who_signs_in_by_a_password_that_changes_meanwhile_is_not_let_in(
    ana: Surfer, plaza: Plaza, monkeypatch: pytest.MonkeyPatch
) -> None:
    accounts = plaza.get(Accounts)
    check = accounts.passwords.check

    async def slow(*args: Any) -> Any:
        checked = await check(*args)
        await accounts.give_password("ana", "battery staple")
        return checked

    monkeypatch.setattr(accounts.passwords, "check", slow)
    form = {"page": "/app/sign-in", "username": "ana", "password": "correct horse"}
    assert (await ana.fill("/app/sign-in", **form)).status_code == 422
    assert "Sign out" not in (await ana.get("/app")).text
