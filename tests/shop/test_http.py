"""The shop over HTTP: every route, through the real application."""

from __future__ import annotations

import asyncio
from dataclasses import replace
from pathlib import Path
from typing import Any

import httpx
import pytest

from plaza.app import running
from plaza.caching.keys import ITEM_VIEWS
from plaza.core.rate_limits import POLICIES, Policy, Quota
from plaza.core.settings import Settings
from plaza.sessions.cookies import PLAIN_NAME, SECURE_NAME
from plaza.sessions.keys import RECENT_TOKENS
from plaza.sessions.model import is_token
from tests.http_servers import client_of
from tests.servers import Cluster, Server
from tests.shop.conftest import API_KEY, KEY
from tests.timeouts import TIME_LIMIT_SECONDS
from tests.waiting import eventually


async def make_item(web: httpx.AsyncClient, **values: Any) -> int:
    body = {"name": "GTab 7inch", "description": "A tablet.", "price": "19.90", "qty": 10, **values}
    made = await web.post("/shop/items", json=body, headers=KEY)
    assert made.status_code == 201, made.text
    return int(made.json()["id"])


async def register(web: httpx.AsyncClient, name: str) -> None:
    made = await web.post("/auth/register", json={"username": name, "password": f"{name} password"})
    assert made.status_code == 201, made.text


async def login(web: httpx.AsyncClient, name: str) -> httpx.Response:
    return await web.post("/shop/login", json={"username": name, "password": f"{name} password"})


def problem(answer: httpx.Response, status: int, code: str = "") -> dict[str, Any]:
    assert answer.status_code == status, answer.text
    assert answer.headers["content-type"].startswith("application/problem+json")
    body: dict[str, Any] = answer.json()
    assert not code or body["code"] == code
    return body


async def test_a_guest_views_an_item_and_orders_it(web: httpx.AsyncClient) -> None:
    item = await make_item(web)
    begun = await web.post("/shop/session")
    assert begun.status_code == 201
    assert (await web.post("/shop/session")).status_code == 200
    seen = await web.get(f"/shop/items/{item}")
    assert seen.json() == {
        "id": item,
        "name": "GTab 7inch",
        "description": "A tablet.",
        "price": "19.90",
        "qty": 10,
        "version": 1,
        "stale": False,
    }
    assert [i["id"] for i in (await web.get("/shop/items")).json()["items"]] == [item]
    assert [i["id"] for i in (await web.get("/shop/items/popular")).json()["items"]] == [item]
    assert [i["id"] for i in (await web.get("/shop/recently-viewed")).json()["items"]] == [item]
    cart = await web.put(f"/shop/cart/items/{item}", json={"qty": 2})
    assert (cart.status_code, cart.json()["total"]) == (200, "39.80")
    assert (await web.get("/shop/cart")).json() == cart.json()
    assert (await web.delete(f"/shop/cart/items/{item}")).json() == {"items": [], "total": "0.00"}
    await web.put(f"/shop/cart/items/{item}", json={"qty": 3})
    order = await web.post("/shop/checkout")
    assert order.status_code == 201
    assert order.json()["total"] == "59.70"
    assert (await web.get("/shop/orders")).json()["orders"] == [order.json()]
    assert (await web.get(f"/shop/items/{item}")).json()["qty"] == 7


async def test_users_log_in_with_their_password_and_keep_their_cart(web: httpx.AsyncClient) -> None:
    item = await make_item(web)
    await register(web, "ana")
    await web.put(f"/shop/cart/items/{item}", json={"qty": 2})
    guest = web.cookies[PLAIN_NAME]
    wrong = await web.post("/shop/login", json={"username": "ana", "password": "wrong password"})
    problem(wrong, 401, "wrong_login")
    assert "set-cookie" not in wrong.headers
    entered = await login(web, "ana")
    assert entered.json()["user"] == "ana"
    assert web.cookies[PLAIN_NAME] != guest
    assert (await web.get("/shop/cart")).json()["items"][0]["qty"] == 2
    late = await web.get("/shop/cart", headers={"cookie": f"{PLAIN_NAME}={guest}"})
    assert late.json()["items"][0]["qty"] == 2
    assert "set-cookie" not in late.headers
    sessions = (await web.get("/shop/sessions")).json()["sessions"]
    assert [(s["user"], s["current"]) for s in sessions] == [("ana", True)]
    left = await web.post("/shop/logout")
    assert left.status_code == 204
    assert "Max-Age=0" in left.headers["set-cookie"]
    assert (await web.get("/shop/cart")).json()["items"] == []
    await login(web, "ana")
    assert (await web.get("/shop/cart")).json()["items"][0]["qty"] == 2


async def test_the_cookie_follows_owasps_recommendations(web: httpx.AsyncClient) -> None:
    plain = (await web.post("/shop/session")).headers["set-cookie"]
    assert plain.startswith(f"{PLAIN_NAME}=")
    assert {"Path=/", "HttpOnly", "SameSite=Lax"} <= set(plain.split("; "))
    assert "Secure" not in plain
    proxied = {"x-forwarded-proto": "https", "x-forwarded-for": "203.0.113.7"}
    secure = (await web.post("/shop/session", headers=proxied)).headers["set-cookie"]
    assert secure.startswith(f"{SECURE_NAME}=")
    assert {"Path=/", "HttpOnly", "SameSite=Lax", "Secure"} <= set(secure.split("; "))
    assert "Domain" not in secure


async def test_a_made_up_cookie_gets_a_new_session(web: httpx.AsyncClient) -> None:
    nobodys = "EB9382CA-0376-4558-B271-EA230BDB7EAF"
    for cookie in ("", "x", "A" * 10_000, nobodys, "; ; =", "%00", "'; DROP TABLE", f"{nobodys}; {PLAIN_NAME}=x"):
        answer = await web.get("/shop/cart", headers={"cookie": f"{PLAIN_NAME}={cookie}"})
        assert answer.status_code == 200
        assert answer.json() == {"items": [], "total": "0.00"}
        given = answer.headers["set-cookie"].partition(";")[0].removeprefix(f"{PLAIN_NAME}=")
        assert is_token(given)
        assert given != nobodys


async def test_a_read_stores_a_session_only_when_its_cookie_comes_back(
    web: httpx.AsyncClient, redis_client: Any
) -> None:
    item = await make_item(web)
    reads = (f"/shop/items/{item}", "/shop/cart", "/shop/recently-viewed", "/shop/orders", "/shop/sessions")
    pages = (f"/app/shop/items/{item}", "/app/shop/cart", "/app/shop/seen", "/app/shop/orders")
    for path in (*reads, *pages):
        web.cookies.clear()
        answer = await web.get(path)
        assert (answer.status_code, is_token(answer.cookies[PLAIN_NAME])) == (200, True), path
        stored = [name async for name in redis_client.scan_iter(f"*{answer.cookies[PLAIN_NAME]}*")]
        assert stored == [], path
    assert await redis_client.exists(RECENT_TOKENS()) == 0
    assert await redis_client.zscore(ITEM_VIEWS(), str(item)) == -2, "views of others count too"
    offered = web.cookies[PLAIN_NAME]
    together = await asyncio.gather(*(web.get(f"/shop/items/{item}") for _ in range(3)))
    assert {answer.status_code for answer in together} == {200}
    assert await redis_client.zcard(RECENT_TOKENS()) == 1
    assert web.cookies[PLAIN_NAME] == offered, "the offered token is the session's"
    assert f"{PLAIN_NAME}-offer" not in web.cookies
    assert [i["id"] for i in (await web.get("/shop/recently-viewed")).json()["items"]] == [item]
    assert "set-cookie" not in (await web.get("/shop/cart")).headers


async def test_an_offered_token_holds_what_a_guest_puts_in_the_cart(web: httpx.AsyncClient) -> None:
    item = await make_item(web)
    web.cookies.clear()
    await web.get(f"/shop/items/{item}")
    offered = web.cookies[PLAIN_NAME]
    assert (await web.put(f"/shop/cart/items/{item}", json={"qty": 2})).status_code == 200
    assert web.cookies[PLAIN_NAME] == offered
    assert (await web.get("/shop/cart")).json()["items"][0]["qty"] == 2


async def test_a_token_that_plaza_did_not_offer_is_never_used(web: httpx.AsyncClient, redis_client: Any) -> None:
    await web.get("/shop/cart")
    proof = web.cookies[f"{PLAIN_NAME}-offer"]
    web.cookies.clear()
    made_up = "EB9382CA-0376-4558-B271-EA230BDB7EAF"
    for cookie in (proof, "9" * 12 + proof[proof.index(".") :], "x", ".", "9.é"):
        headers = {b"cookie": f"{PLAIN_NAME}={made_up}; {PLAIN_NAME}-offer={cookie}".encode()}
        answer = await web.get("/shop/cart", headers=headers)
        assert answer.cookies[PLAIN_NAME] != made_up
    assert await redis_client.exists(RECENT_TOKENS()) == 0


async def test_an_address_starts_a_limited_number_of_sessions(server: Server, tmp_path: Path) -> None:
    settings = Settings(data_dir=tmp_path, valkey_url=server.url, api_key=API_KEY)
    few = {**POLICIES, "session": Policy(user=Quota(1, 60), address=Quota(3, 60))}
    async with running(settings) as plaza, client_of(plaza.app) as client:
        vars(plaza.core.limiter)["_policies"] = few
        statuses = []
        for _ in range(4):
            client.cookies.clear()
            statuses.append((await client.post("/shop/session")).status_code)
        assert statuses == [201, 201, 201, 429]
        for _ in range(2):  # a read is served without a session
            assert (await client.get("/shop/cart")).status_code == 200
        assert await plaza.core.valkey.call("ZCARD", RECENT_TOKENS()) == 3


CROSS_ORIGIN: list[dict[str, str]] = [
    {"sec-fetch-site": "cross-site"},
    {"sec-fetch-site": "same-site"},
    {"origin": "https://evil.example"},
    {"origin": "null"},
]


@pytest.mark.parametrize("headers", CROSS_ORIGIN)
async def test_pages_of_other_origins_cannot_use_the_cookie(web: httpx.AsyncClient, headers: dict[str, str]) -> None:
    item = await make_item(web)
    await register(web, "ana")
    await login(web, "ana")
    line = f"/shop/cart/items/{item}"
    for request in (
        web.put(line, json={"qty": 2}, headers=headers),
        web.delete(line, headers=headers),
        web.post("/shop/checkout", headers=headers),
        web.post("/shop/logout", headers=headers),
        web.post("/shop/session", headers=headers),
        web.post("/shop/login", json={"username": "ana", "password": "ana password"}, headers=headers),
        web.delete(f"/shop/sessions/{'0' * 32}", headers=headers),
    ):
        problem(await request, 403, "cross_origin")
    assert (await web.get("/shop/sessions")).json()["sessions"][0]["user"] == "ana"
    own = {"sec-fetch-site": "same-origin", "origin": str(web.base_url).rstrip("/")}
    assert (await web.put(line, json={"qty": 2}, headers=own)).status_code == 200


async def test_only_named_origins_may_use_the_cookie(server: Server, tmp_path: Path) -> None:
    settings = Settings(data_dir=tmp_path, valkey_url=server.url, cors_origins=("https://shop.example", "*"))
    async with running(settings) as plaza, client_of(plaza.app) as client:
        for origin, status in (("https://shop.example", 201), ("https://evil.example", 403)):
            headers = {"origin": origin, "sec-fetch-site": "cross-site"}
            assert (await client.post("/shop/session", headers=headers)).status_code == status
            client.cookies.clear()


async def test_invalid_input_is_rejected_and_changes_nothing(web: httpx.AsyncClient) -> None:
    item = await make_item(web)
    await web.put(f"/shop/cart/items/{item}", json={"qty": 5})
    for qty in (-1, 1_000_000_000, 1.5, "3", None):
        assert problem(await web.put(f"/shop/cart/items/{item}", json={"qty": qty}), 422)["field"] == "qty"
    problem(await web.put(f"/shop/cart/items/{item + 1}", json={"qty": 1}), 404)
    problem(await web.put("/shop/cart/items/none", json={"qty": 1}), 422)
    problem(await web.get(f"/shop/items/{item + 1}"), 404)
    problem(await web.get(f"/shop/pages/items/{item + 1}"), 404)
    problem(await web.put(f"/shop/cart/items/{item}", content=b"{"), 400)
    problem(
        await web.post("/shop/items", json={"name": "n", "description": "", "price": 1.5, "qty": 1}, headers=KEY), 422
    )
    problem(await web.patch(f"/shop/items/{item}", json={"description": "\0"}, headers=KEY), 422)
    problem(await web.patch(f"/shop/items/{item}", json={"price": "1.999"}, headers=KEY), 422)
    problem(await web.post("/shop/items", json={}), 401)
    problem(await web.put(f"/shop/cache/rows/{item}", json={"delay": 5}), 401)
    problem(await web.get("/shop/cache"), 401)
    problem(await web.delete("/shop/sessions/" + "0" * 32), 404)
    problem(await web.delete("/shop/sessions/x"), 422)
    assert [line["qty"] for line in (await web.get("/shop/cart")).json()["items"]] == [5]


async def test_admin_routes_are_forbidden_to_users(web: httpx.AsyncClient) -> None:
    item = await make_item(web)
    await register(web, "ben")
    entered = await web.post("/auth/login", json={"username": "ben", "password": "ben password"})
    user = {"authorization": f"Bearer {entered.json()['access_token']}"}
    problem(await web.patch(f"/shop/items/{item}", json={"qty": 1}, headers=user), 403)
    problem(await web.put(f"/shop/cache/rows/{item}", json={"delay": 5}, headers=user), 403)
    problem(await web.get("/shop/cache", headers=user), 403)


async def test_two_checkouts_with_one_idempotency_key_order_once_and_never_return_another_users_order(
    web: httpx.AsyncClient,
) -> None:
    item = await make_item(web, qty=5)
    await web.put(f"/shop/cart/items/{item}", json={"qty": 1})
    key = {"idempotency-key": "mine"}
    first, second = await web.post("/shop/checkout", headers=key), await web.post("/shop/checkout", headers=key)
    assert first.json() == second.json()
    assert second.headers["idempotency-replayed"] == "true"
    other = httpx.AsyncClient(base_url=web.base_url, timeout=TIME_LIMIT_SECONDS)
    async with other:
        await other.put(f"/shop/cart/items/{item}", json={"qty": 2})
        mine = await other.post("/shop/checkout", headers=key)
        assert mine.json()["id"] != first.json()["id"], "another guest of the same address"
    await web.put(f"/shop/cart/items/{item}", json={"qty": 3})
    short = problem(await web.post("/shop/checkout"), 409, "out_of_stock")
    assert (short["id"], short["left"]) == (item, 2)


async def test_rows_are_scheduled_and_the_worker_copies_them(place: Server | Cluster, tmp_path: Path) -> None:
    settings = Settings(data_dir=tmp_path, valkey_url=place.url, api_key=API_KEY, rate_limits=False)
    async with running(settings) as plaza, client_of(plaza.app) as web:
        item = await make_item(web)
        put = await web.put(f"/shop/cache/rows/{item}", json={"delay": 0.2}, headers=KEY)
        due = put.json()["due_at"]
        assert (put.json()["id"], put.json()["delay"]) == (item, 0.2)

        async def copied() -> dict[str, Any] | None:
            state: dict[str, Any] = (await web.get("/shop/cache", headers=KEY)).json()
            return state if state["rows"][0]["due_at"] > due + 0.3 else None

        working = asyncio.create_task(plaza.worker.run())
        try:
            state = await eventually(copied)
            assert state["scheduled"] == 1
        finally:
            working.cancel()
            await asyncio.gather(working, return_exceptions=True)
        gone = await web.put(f"/shop/cache/rows/{item}", json={"delay": 0}, headers=KEY)
        assert gone.json() == {"id": item, "delay": None, "due_at": None}
        assert (await web.delete(f"/shop/cache/rows/{item}", headers=KEY)).status_code == 204
        assert (await web.get("/shop/cache", headers=KEY)).json()["rows"] == []


async def test_pages_have_a_cache_status(web: httpx.AsyncClient) -> None:
    item = await make_item(web, name="A & B")
    path = f"/shop/pages/items/{item}"
    cold = await web.get(path)
    assert cold.headers["cache-status"] == "plaza; fwd=bypass; detail=unpopular"
    await web.get(f"/shop/items/{item}")
    web.cookies.clear()
    miss, hit = await web.get(path), await web.get(path)
    assert miss.headers["cache-status"] == "plaza; fwd=uri-miss; stored"
    assert hit.headers["cache-status"].startswith("plaza; hit; ttl=")
    assert hit.text == miss.text
    assert "A &amp; B" in hit.text
    assert hit.headers["content-type"] == "text/html; charset=utf-8"
    assert hit.headers["vary"] == "cookie, authorization"
    assert "set-cookie" not in hit.headers
    same = await web.get(path, headers={"if-none-match": hit.headers["etag"]})
    assert (same.status_code, same.content) == (304, b"")
    assert same.headers["etag"] == hit.headers["etag"]
    assert (await web.get(path + "?_=123")).headers["cache-status"] == "plaza; fwd=bypass; detail=unwanted"
    assert (await web.get(path + "?a_b=1")).headers["cache-status"].startswith("plaza; hit; ttl="), "not a copy"
    assert (await web.get(path, headers=KEY)).headers["cache-status"] == "plaza; fwd=bypass; detail=personal"
    head = await web.head(path)
    assert (head.status_code, head.content) == (200, b"")
    counted = (await web.get("/metrics")).text
    for result in ("hit", "computed", "passed"):
        assert f'plaza_cache_pages_total{{result="{result}"}}' in counted
    changed = await web.patch(f"/shop/items/{item}", json={"name": "C"}, headers=KEY)
    assert changed.status_code == 200
    new = await web.get(path)
    assert "C</h1>" in new.text
    assert new.headers["etag"] != hit.headers["etag"]


async def test_signed_in_users_bypass_the_page_cache(web: httpx.AsyncClient) -> None:
    item = await make_item(web)
    await register(web, "ana")
    await web.get(f"/shop/items/{item}")
    await login(web, "ana")
    own = await web.get(f"/shop/pages/items/{item}")
    assert own.headers["cache-status"] == "plaza; fwd=bypass; detail=personal"
    assert own.headers["cache-control"] == "private, no-cache"


async def test_sessions_and_carts_survive_a_restart(place: Server | Cluster, tmp_path: Path) -> None:
    settings = Settings(data_dir=tmp_path, valkey_url=place.url, api_key=API_KEY, rate_limits=False)
    async with running(settings) as plaza, client_of(plaza.app) as web:
        item = await make_item(web)
        cart = await web.put(f"/shop/cart/items/{item}", json={"qty": 2})
        cookie = f"{PLAIN_NAME}={web.cookies[PLAIN_NAME]}"
    async with running(replace(settings)) as plaza, client_of(plaza.app) as web:
        again = await web.get("/shop/cart", headers={"cookie": cookie})
        assert again.json() == cart.json()
        assert "set-cookie" not in again.headers


async def test_deleting_an_account_ends_its_sessions_and_deletes_its_cart(web: httpx.AsyncClient) -> None:
    item = await make_item(web)
    await register(web, "ana")
    entered = await web.post("/auth/login", json={"username": "ana", "password": "ana password"})
    bearer = {"authorization": f"Bearer {entered.json()['access_token']}"}
    await login(web, "ana")
    await web.put(f"/shop/cart/items/{item}", json={"qty": 2})
    exported = await web.get("/users/me/export", headers=bearer)
    assert exported.status_code == 200
    assert str(item) in exported.text
    assert web.cookies[PLAIN_NAME] not in exported.text
    gone = await web.request("DELETE", "/users/me", json={"password": "ana password"}, headers=bearer)
    assert gone.status_code in (200, 202, 204), gone.text
    after = await web.post("/shop/session")
    assert after.status_code == 201
    assert after.json()["user"] is None
    assert (await web.get("/shop/cart")).json()["items"] == []
