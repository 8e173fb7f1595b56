"""Every text that callers or other services can store is shown as text, on every page and in every feed."""

from __future__ import annotations

import re
from typing import Any
from urllib.parse import quote
from xml.etree import ElementTree

from redis.asyncio import Redis

from plaza.app import Plaza
from plaza.articles.keys import ARTICLE, ARTICLES_BY_TIME
from plaza.core.auth import API
from plaza.social.keys import POST, USER
from plaza.social.users import Users
from tests.media.images import picture
from tests.pages.conftest import PageClient, ParsedPage
from tests.servers import Server

EVIL = "<img src=x onerror=alert(1)>\"'><svg/onload=alert(1)>{{7*7}}"
SCRIPT_URL = "javascript:alert(1)"


async def sent(client: PageClient, token: str, method: str, path: str, body: Any = None, **options: Any) -> Any:
    headers = {"authorization": f"Bearer {token}", "accept": "application/json"}
    response = await client.request(method, path, json=body, headers=headers, **options)
    assert response.status_code in (200, 201, 202, 204), (path, response.text)
    return response.json() if response.content else None


def assert_harmless(page: str, path: str) -> None:
    """Check that no text became an element, an attribute or an address that runs code."""
    for tag, attributes in ParsedPage(page).elements:
        assert not any(name.startswith("on") for name in attributes), (path, tag, attributes)
        assert attributes.get("src") != "x", (path, tag, attributes)
        for name in ("href", "src", "action", "formaction", "poster"):
            value = attributes.get(name, "").strip().lower()
            assert not value.startswith(("javascript:", "data:text", "vbscript:")), (path, tag, attributes)
    assert "alert(1)&gt;49" not in page, path


async def test_no_stored_text_becomes_markup(ana: PageClient, url: str, plaza: Plaza) -> None:
    token, admin = plaza.core.auth.issue("ana", "user"), plaza.core.auth.issue("root", "admin")

    async def user(method: str, path: str, body: Any = None, **options: Any) -> Any:
        return await sent(ana, token, method, path, body, **options)

    async def as_admin(method: str, path: str, body: Any = None) -> Any:
        return await sent(ana, admin, method, path, body)

    profile = {"display_name": EVIL, "bio": EVIL, "links": f'{EVIL} {SCRIPT_URL} https://a.example/"onclick=alert(1)'}
    await user("PATCH", "/users/me", profile)
    upload = await user("POST", "/media", files={"file": ("<b>.png", picture())}, data={"alt": EVIL})
    post = (await user("POST", "/posts", {"content": f"{EVIL} #evil @ana", "media": [upload["id"]]}))["id"]
    comment = (await user("POST", f"/posts/{post}/comments", {"content": EVIL}))["id"]
    await user("POST", f"/posts/{post}/comments", {"content": EVIL, "reply_to": comment})
    article = {"title": EVIL, "link": "https://a.example/'\"><svg/onload=alert(1)>", "groups": ["evil"]}
    number = (await user("POST", "/articles", article))["id"]
    await user("POST", f"/articles/{number}/comments", {"content": EVIL})
    challenge = {"title": EVIL, "category": 1, "is_public": True, "duration": 7, "unit": EVIL[:20]}
    challenge_id = (await user("POST", "/challenges", challenge))["id"]
    await user("POST", f"/challenges/{challenge_id}/join")
    await user("POST", f"/challenges/{challenge_id}/posts", {"text": EVIL})
    for subject, id in (("post", post), ("comment", comment), ("article", str(number)), ("user", "ana")):
        await user("POST", "/reports", {"subject": subject, "id": id, "reason": EVIL})
    item = await as_admin("POST", "/shop/items", {"name": EVIL, "description": EVIL, "price": "1.00", "qty": 5})
    await as_admin("PUT", f"/analytics/events/{quote('<b>fair')}", {"title": EVIL, "sessions": ["<b>stage"]})
    beat = {"location": "<b>home", "session_id": "<b>stage", "groups": ["<b>vip"]}
    await user("POST", f"/analytics/events/{quote('<b>fair')}/heartbeat", beat)
    webhook = {"url": "https://hooks.example/<b>", "types": ["post.*"], "description": EVIL}
    hook = (await as_admin("POST", "/webhooks", webhook))["id"]
    # What other services may have written by the documents.
    await plaza.core.valkey.call("HSET", USER("ana"), "avatar", SCRIPT_URL, "role", EVIL)
    other = (await user("POST", "/posts", {"content": "picture"}))["id"]
    await plaza.core.valkey.call("HSET", POST(other), "media_url", SCRIPT_URL, "avatar", SCRIPT_URL, "hashtags", EVIL)
    second = (await user("POST", "/articles", {"title": "B", "link": "https://b.example/"}))["id"]
    await plaza.core.valkey.call("HSET", ARTICLE(second), "link", SCRIPT_URL, "author", f"user:{EVIL}")

    event = quote("<b>fair")
    pages = [
        "", "/people/ana", f"/posts/{post}", f"/posts/{other}", "/tags/evil", "/tags/evil/ranked",
        "/articles?order=time",
        f"/articles/{number}", f"/articles/{second}", "/groups/evil", "/challenges", f"/challenges/{challenge_id}",
        f"/challenges/{challenge_id}/days", f"/challenges/{challenge_id}/edit",
        f"/challenges/{challenge_id}/leaderboard",
        "/challenges/for-you", "/events", f"/events/{event}", "/shop", "/shop/popular", f"/shop/items/{item['id']}",
        "/profile", "/account", "/security", "/search?q=alert", f"/search?q={quote(EVIL)}",
        f"/report?subject={quote(EVIL)}&id={quote(EVIL)}", f"/people/{quote(EVIL)}", f"/sign-in?next={quote(EVIL)}",
    ]  # fmt: skip
    for path in pages:
        response = await ana.get(f"/app{path}")
        assert response.status_code in (200, 303, 404), (path, response.text)
        assert_harmless(response.text, path)
    assert_harmless((await ana.get(f"/shop/pages/items/{item['id']}")).text, "item page")
    for path in ("/articles.atom?order=time", "/groups/evil.atom", "/users/ana.atom", "/tags/evil.atom"):
        feed = ElementTree.fromstring((await ana.get(path)).text)
        links = [link.get("href", "") for link in feed.iter("{http://www.w3.org/2005/Atom}link")]
        assert links, path
        assert not any(link.startswith("javascript") for link in links), path

    await plaza.get(Users).set_role(API, "ana", "admin")
    async with PageClient(url) as operator:
        await operator.submit("/app/sign-in", page="/app/sign-in", username="ana", password="correct horse")
        for path in (
            "/operator/live", f"/operator/live?event={event}", f"/operator/live/audience?event={event}",
            "/operator/log", "/operator/reports",
            "/operator/keys/user",
            "/operator/keys/post", f"/operator/keys/user/key?name={quote(USER('ana'))}", "/operator/webhooks",
            f"/operator/webhooks/{hook}", f"/operator/log?q={quote(EVIL)}", "/operator/health",
            "/operator/articles", f"/operator/articles?author={quote(EVIL)}",
            f"/operator/articles?number={quote(EVIL)}", f"/operator/articles?title={quote(EVIL)}",
            "/operator/items", f"/operator/items?q={quote(EVIL)}",
        ):  # fmt: skip
            response = await operator.get(f"/app{path}")
            assert response.status_code == 200, (path, response.text)
            assert_harmless(response.text, path)


async def test_an_incomplete_article_of_another_service_has_no_link_without_text(
    guest: PageClient, plaza: Plaza, server: Server
) -> None:
    async with Redis(port=server.port, decode_responses=True) as other_service:
        for number, title, author in ((910, "", "user:"), (911, " ", "ben"), (912, "A title", " ")):
            fields: dict[Any, Any] = {
                "title": title,
                "link": "https://example.org/",
                "author": author,
                "time": 1,
                "votes": 1,
            }
            await other_service.hset(ARTICLE(number), mapping=fields)
            await other_service.zadd(ARTICLES_BY_TIME(), {f"article:{number}": 1})
    for path in ("/articles?order=time", "/articles/910", "/articles/911", "/articles/912", "/shop"):
        page = (await guest.get(f"/app{path}")).text
        links = re.findall(r"<a [^>]*>(?:\s|<bdi>|</bdi>)*</a>", page)
        assert links == [], path
    rows = (await guest.get("/app/articles?order=time")).text
    assert rows.count("<bdi>Article 910</bdi>") == rows.count("<bdi>Article 911</bdi>") == 1
    assert rows.count('<a href="/app/people/ben">ben</a>') == 1
    assert "<title>Article 910 · Plaza</title>" in (await guest.get("/app/articles/910")).text
