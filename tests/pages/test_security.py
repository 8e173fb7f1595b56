"""Security of the pages: user text is never code, other sites cannot act here, redirects stay on this site."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pyotp
import pytest

from plaza.accounts.second_factor import SecondFactors
from plaza.app import Plaza, running
from plaza.core.auth import API, Actor
from plaza.core.rate_limits import POLICIES, Policy, Quota
from plaza.core.settings import Settings
from plaza.demo.lifecycle import Demo
from plaza.http_application import route_groups
from plaza.shop.items import Items
from plaza.shop.model import NewItem
from plaza.social.accounts import Accounts
from plaza.social.model import PasswordChange
from plaza.social.password_changes import PasswordChanges
from plaza.social.users import Users
from plaza.web.demo_accounts import DemoAccount
from plaza.web.security import local_path
from tests.http_servers import serving
from tests.pages.conftest import PageClient, ParsedPage
from tests.servers import Server

EVIL = (
    "<script>alert(1)</script> <img src=x onerror=alert(1)> \"'><svg/onload=alert(1)> {{ 7*7 }} {% raw %} "
    'javascript:alert(1) [x](javascript:alert(1)) https://example.org/"onmouseover=alert(1) '
    "https://example.org/<b> #a<b> @ana</a> "
    "\u202egnp.exe\u202c \u2066x\u2069 z\u0335\u0336\u0337 \ufeff\u200b 👩‍👩‍👧 &lt;b&gt;"
)


async def test_user_text_is_never_markup(ana: PageClient) -> None:
    await ana.submit("/app/posts", content=EVIL)
    plain = ParsedPage((await ana.get("/app/sign-in")).text)
    page = ParsedPage((await ana.get("/app")).text)
    assert {tag for tag, _ in page.elements} <= {tag for tag, _ in plain.elements} | {
        "article",
        "time",
        "bdi",
        "textarea",
        "use",
    } | {"symbol", "circle", "div", "details", "summary", "small"}
    assert [a["src"] for tag, a in page.elements if tag == "script"] == [
        a["src"] for tag, a in plain.elements if tag == "script"
    ]
    assert all(not name.startswith("on") and name != "style" for _, attributes in page.elements for name in attributes)
    links = {attributes["href"] for tag, attributes in page.elements if tag == "a"}
    assert all(link.startswith(("/app", "https://example.org/", "#")) for link in links), links
    words = "".join(page.texts)
    assert "<script>alert(1)</script> <img src=x onerror=alert(1)>" in words
    assert "{{ 7*7 }} {% raw %}" in words
    assert "&lt;b&gt;" in words, "an entity in the text is shown as typed"


async def test_pages_have_no_inline_code_and_load_nothing_from_other_hosts(ana: PageClient) -> None:
    for path in ("/app", "/app/sign-in", "/app/nowhere"):
        response = await ana.get(path)
        policy = response.headers["content-security-policy"]
        assert policy.startswith("default-src 'none'; script-src 'self'; style-src 'self';")
        assert "unsafe" not in policy
        assert "frame-ancestors 'none'" in policy
        assert response.headers["cache-control"].startswith(("private", "no-store"))
        page = ParsedPage(response.text)
        assert not [tag for tag, attributes in page.elements if tag == "style" or "style" in attributes]
        assert all("src" in attributes for tag, attributes in page.elements if tag == "script")


@pytest.mark.parametrize(
    "change",
    [{"csrf": ""}, {"csrf": "0" * 32}, {"csrf": "é"}],
    ids=["missing", "invalid", "not ascii"],
)
async def test_a_form_without_a_valid_token_changes_nothing(ana: PageClient, change: dict[str, str]) -> None:
    response = await ana.submit("/app/posts", content="hello", **change)
    assert response.status_code == 403
    assert "earlier session" in response.text
    assert "hello" not in (await ana.get("/app")).text


async def test_a_form_token_is_useless_in_another_session(ana: PageClient, url: str) -> None:
    async with PageClient(url) as bob:
        await bob.sign_up("bob")
        stolen = await bob.hidden_fields("/app")
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
async def test_other_sites_cannot_submit_forms(ana: PageClient, headers: dict[str, str]) -> None:
    form = await ana.hidden_fields("/app")
    response = await ana.post("/app/posts", data={**form, "content": "hello"}, headers=headers)
    assert response.status_code == 403
    own = {"origin": str(ana.base_url).rstrip("/"), "sec-fetch-site": "same-origin"}
    assert (await ana.post("/app/posts", data={**form, "content": "hello"}, headers=own)).status_code == 303


@pytest.mark.parametrize(
    "wanted",
    ["//evil.example", "/\\evil.example", "https://evil.example", "javascript:alert(1)", "/app\\@evil", "/application",
     "/app/\r\nset-cookie: a=b", "\t//evil.example", "/docs", "", "/app/../docs",
     "/app/people/%2E./..", "/app/.."],
)  # fmt: skip
def test_a_redirect_to_anything_but_a_page_is_ignored(wanted: str) -> None:
    assert local_path(wanted) == "/app"


async def test_no_form_redirects_to_another_site(guest: PageClient) -> None:
    evil = "//evil.example"
    assert 'value="//evil' not in (await guest.get(f"/app/sign-up?next={evil}")).text
    fields = {"username": "ana", "password": "correct horse", "next": evil}
    for path in ("/app/sign-up", "/app/sign-in"):
        assert (await guest.submit(path, page=path, **fields)).headers["location"] == "/app"
    posted = await guest.submit("/app/posts", content="hello", next=evil)
    assert posted.headers["location"].startswith("/app/posts/")


@pytest.mark.parametrize("wanted", ["/app", "/app?cursor=a/../b", "/app/people/..dots..", "/app/events/a%2Fb/#x"])
def test_a_redirect_to_any_page_is_allowed(wanted: str) -> None:
    assert local_path(wanted) == wanted


async def test_signing_up_on_the_way_to_a_page_beyond_ascii_works(guest: PageClient) -> None:
    fields = {"username": "ana", "password": "correct horse", "next": "/app/people/€?q=ü%20x"}
    response = await guest.submit("/app/sign-up", page="/app/sign-up", **fields)
    assert response.status_code == 303
    assert response.headers["location"] == "/app/people/%E2%82%AC?q=%C3%BC%20x"


async def test_sign_in_leads_back_to_the_previous_page(guest: PageClient) -> None:
    response = await guest.post("/app/posts", data={"content": "hello", "next": "/app?cursor=x"})
    assert response.headers["location"] == "/app/sign-in?next=%2Fapp%3Fcursor%3Dx"
    page = await guest.hidden_fields(response.headers["location"])
    assert page["next"] == "/app?cursor=x"
    await guest.sign_up("ana")
    for path, action in (("articles/new", "articles"), ("challenges/new", "challenges"), ("profile", "profile")):
        text = (await guest.get(f"/app/{path}")).text
        own = text.partition(f'action="/app/{action}">')[2].partition("</form>")[0]
        assert f'name="next" value="/app/{path}"' in own, "for a session that ends while the form is open"


async def test_a_media_address_shows_invisible_characters_encoded(ana: PageClient) -> None:
    await ana.submit("/app/posts", content="look", media_url="https://a.example/\u202egpj.exe")
    page = ParsedPage((await ana.get("/app")).text)
    assert "https://a.example/%E2%80%AEgpj.exe" in page.texts
    assert not any("\u202e" in words for words in page.texts)


@pytest.mark.parametrize("page", ["/app/sign-in", "/app/sign-up"])
async def test_switching_between_sign_in_and_sign_up_keeps_the_previous_page(guest: PageClient, page: str) -> None:
    text = (await guest.get(f"{page}?next=/app/articles")).text
    assert re.findall(r'href="(/app/sign-(?:in|up)[^"]*)"', text) == [
        "/app/sign-in?next=/app/articles",
        "/app/sign-up?next=/app/articles",
        ("/app/sign-up" if page == "/app/sign-in" else "/app/sign-in") + "?next=/app/articles",
    ]


async def test_browsers_do_not_store_pages_of_a_signed_in_user(guest: PageClient, ana: PageClient) -> None:
    for path in ("/app", "/app/bookmarks", "/app/shop/cart"):
        assert (await ana.get(path)).headers.get_list("cache-control") == ["no-store"]
    assert (await guest.get("/app/shop/cart")).headers.get_list("cache-control") == ["private, no-cache"]


async def test_demo_accounts_are_not_offered_behind_a_proxy(guest: PageClient, monkeypatch: pytest.MonkeyPatch) -> None:
    async def accounts(demo: Demo, host: str) -> list[DemoAccount]:
        return [DemoAccount("ana", "Ana", "user")] if host else []

    monkeypatch.setattr(Demo, "accounts", accounts)
    form = {**await guest.hidden_fields("/app/sign-in"), "as": "ana"}
    for name in ("Forwarded", "Via", "X-Forwarded-For", "X-Forwarded-Host", "X-Real-IP"):
        passed = {name: "for=203.0.113.9"}
        assert "Ana" not in (await guest.get("/app/sign-in", headers=passed)).text
        assert (await guest.post("/app/sign-in/as", data=form, headers=passed)).status_code == 404
    assert "Ana" in (await guest.get("/app/sign-in")).text


async def test_only_demo_accounts_need_no_password(
    guest: PageClient, ana: PageClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def accounts(demo: Demo, host: str) -> list[DemoAccount]:
        return [DemoAccount("ana", "Ana <b>", "user")]

    assert "Try a demo account" not in (await guest.get("/app/sign-in")).text
    monkeypatch.setattr(Demo, "accounts", accounts)
    assert "Ana &lt;b&gt;" in (await guest.get("/app/sign-in")).text
    assert (await guest.submit("/app/sign-in/as", page="/app/sign-in", **{"as": "bob"})).status_code == 404
    assert (await guest.submit("/app/sign-in/as", page="/app/sign-in", **{"as": "ana"})).status_code == 303
    assert "Sign out" in (await guest.get("/app")).text


async def test_opening_the_sign_in_page_stores_nothing(guest: PageClient, server: Server) -> None:
    with server.redis_client() as redis_client:
        before = set(redis_client.scan_iter("*"))
        for path in ("/app/sign-in", "/app/sign-up", "/app", "/app/articles"):
            assert (await guest.get(path)).status_code == 200
        assert set(redis_client.scan_iter("*")) - before == set()
    await guest.sign_up("ana")


async def test_the_cookie_is_bound_to_this_host_over_https(server: Server, tmp_path: Path) -> None:
    settings = Settings(data_dir=tmp_path, valkey_url=server.url, trusted_proxies=("127.0.0.1",))
    async with running(settings) as plaza, serving(plaza.app) as url, PageClient(url) as client:
        response = await client.get("/app/sign-in", headers={"x-forwarded-proto": "https"})
    cookie = response.headers["set-cookie"]
    assert cookie.startswith("__Host-plaza=")
    assert {"Path=/", "HttpOnly", "Secure", "SameSite=Lax"} <= set(cookie.split("; "))


async def test_signing_out_ends_the_session(ana: PageClient) -> None:
    cookie = ana.cookies["plaza"]
    await ana.submit("/app/sign-out")
    ana.cookies.set("plaza", cookie)
    assert "Sign out" not in (await ana.get("/app")).text


async def test_a_wrong_password_keeps_the_username(guest: PageClient) -> None:
    response = await guest.submit("/app/sign-in", page="/app/sign-in", username="ana", password="wrong")
    assert response.status_code == 422
    assert 'value="ana"' in response.text


async def test_attackers_cannot_lock_a_user_out_of_a_browser_they_have_used(server: Server, tmp_path: Path) -> None:
    settings = Settings(data_dir=tmp_path, valkey_url=server.url)
    login = {"page": "/app/sign-in", "username": "ana", "password": "correct horse"}
    async with running(settings) as plaza, serving(plaza.app) as url, PageClient(url) as ana, PageClient(url) as other:
        await ana.sign_up("ana")
        await ana.submit("/app/sign-out")
        for _ in range(POLICIES["guess"].user.count):
            await other.submit("/app/sign-in", page="/app/sign-in", username="ana", password="wrong")
        assert (await other.submit("/app/sign-in", **login)).status_code == 429
        assert (
            await other.post("/shop/login", json={"username": "ana", "password": "correct horse"})
        ).status_code == 429
        assert (await ana.submit("/app/sign-in", **login)).status_code == 303
        entered = await ana.post("/shop/login", json={"username": "ana", "password": "correct horse"})
        assert (entered.status_code, "plaza-device" in entered.cookies) == (200, True)


async def test_sign_in_asks_for_the_code_of_a_second_factor(ana: PageClient, guest: PageClient, plaza: Plaza) -> None:
    factors = plaza.get(SecondFactors)
    totp = pyotp.TOTP((await factors.enrol(Actor("ana", "user"))).secret)
    codes = await factors.confirm(Actor("ana", "user"), totp.now())
    credentials = {"page": "/app/sign-in", "username": "ana", "password": "correct horse"}
    assert 'name="code"' not in (await guest.get("/app/sign-in")).text
    for code in ("", "000000", "1"):
        refused = await guest.submit("/app/sign-in", **credentials, code=code)
        assert refused.status_code == 422
        assert 'name="code"' in refused.text, code
    assert (await guest.submit("/app/sign-in", **credentials, code=codes[0])).status_code == 303
    assert "Sign out" in (await guest.get("/app")).text


async def test_forms_count_against_the_users_rate_limit(server: Server, tmp_path: Path) -> None:
    settings = Settings(data_dir=tmp_path, valkey_url=server.url)
    async with running(settings) as plaza, serving(plaza.app) as url, PageClient(url) as ana, PageClient(url) as bob:
        await ana.sign_up("ana")
        await bob.sign_up("bob")
        few = Policy(user=Quota(2, 60), address=Quota(100, 60))
        vars(plaza.core.limiter)["_policies"] = {**POLICIES, "write": few}
        sent = [await ana.submit("/app/posts", content=f"{number}") for number in range(3)]
        assert [response.status_code for response in sent] == [303, 303, 429]
        assert "Try again in 30 s." in sent[-1].text
        assert sent[1].headers["ratelimit"].startswith('"write";r=0;')
        assert (await bob.submit("/app/posts", content="hello")).status_code == 303, "from the same address"
        assert (await ana.get("/app")).status_code == 200
        assert (await ana.submit("/app/sign-out")).status_code == 303


async def test_a_new_password_ends_every_session_and_keeps_the_cart(ana: PageClient, plaza: Plaza, url: str) -> None:
    item = await plaza.get(Items).create(NewItem("Lamp", "Bright.", "9.00", 3), "one")
    await ana.submit(f"/app/shop/cart/{item.id}", page=f"/app/shop/items/{item.id}", qty="2")
    passwords = plaza.get(PasswordChanges)
    async with PageClient(url) as thief:
        for change in (
            passwords.change(Actor("ana", "user"), PasswordChange("correct horse", "battery staple")),
            passwords.set("ana", "battery staple"),
        ):
            thief.cookies.set("plaza", ana.cookies["plaza"])
            assert "Sign out" in (await thief.get("/app")).text
            await change
            assert "Sign out" not in (await thief.get("/app")).text
            thief.cookies.clear()
            await ana.submit("/app/sign-in", page="/app/sign-in", username="ana", password="battery staple")
    assert "Lamp" in (await ana.get("/app/shop/cart")).text


async def test_sign_in_fails_if_the_password_changes_meanwhile(
    ana: PageClient, plaza: Plaza, monkeypatch: pytest.MonkeyPatch
) -> None:
    passwords = plaza.get(PasswordChanges)
    hashing = plaza.get(Accounts).passwords
    check = hashing.check

    async def check_then_change(*args: Any) -> Any:
        checked = await check(*args)
        await passwords.set("ana", "battery staple")
        return checked

    monkeypatch.setattr(hashing, "check", check_then_change)
    form = {"page": "/app/sign-in", "username": "ana", "password": "correct horse"}
    assert (await ana.submit("/app/sign-in", **form)).status_code == 422
    assert "Sign out" not in (await ana.get("/app")).text


@pytest.mark.usefixtures("ana")
async def test_no_form_of_any_page_accepts_another_sites_request(plaza: Plaza, url: str) -> None:
    await plaza.get(Users).set_role(API, "ana", "admin")
    async with PageClient(url) as admin:
        await admin.submit("/app/sign-in", page="/app/sign-in", username="ana", password="correct horse")
        form = await admin.hidden_fields("/app")
        paths = [
            re.sub(r"\{\w+\}", "1", route.template)
            for routes in route_groups()
            for route in routes.routes
            if route.method == "POST" and route.template.startswith("/app/")
        ]
        assert len(paths) > 40
        for path in paths:
            for headers, fields in (({"origin": "https://evil.example"}, form), ({}, {**form, "csrf": "x"})):
                response = await admin.post(path, data=fields, headers=headers)
                assert response.status_code == 403, (path, headers, response.status_code, response.text[:300])
