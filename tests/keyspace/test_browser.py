"""The key browser lists and shows keys in bounded steps, on one server and on a cluster."""

from __future__ import annotations

from typing import Any

import pytest

from plaza.core.errors import Invalid, NotFound
from plaza.core.keyspace import Catalogue, HashField, Key, KeyAccess, Layout
from plaza.core.valkey import Valkey
from plaza.keyspace import browser
from plaza.keyspace.browser import KeyBrowser, glob, unix_ms

BOX = Key(
    "box:<box>",
    "hash",
    "A box.",
    owner="box",
    fields=(
        HashField("made_at", "when, Unix milliseconds"),
        HashField("owner", "whose", read=KeyAccess.SELF),
        HashField("key", "opens it", read=KeyAccess.NONE),
    ),
    read=KeyAccess.ADMIN,
)
BOX_LID = Key(
    "box:<box>:lid[*]", "zset", "Lids.", contains="lid", score="when, Unix seconds", owner="box", read=KeyAccess.ADMIN
)
TICKET = Key("ticket:<token>", "string", "Lets one in.", read=KeyAccess.ADMIN)
SAFE = Key("safe", "set", "Closed.")
CATALOGUE = Catalogue.from_module("boxes", globals(), {"box": r"[^{}:]+", "token": "[0-9a-f]{12}"})


@pytest.fixture
def key_browser(valkey: Valkey) -> KeyBrowser:
    return KeyBrowser(valkey, [CATALOGUE])


async def test_all_keys_of_a_family_are_found_page_by_page_and_no_others(
    key_browser: KeyBrowser, redis_client: Any
) -> None:
    names = {BOX(n) for n in range(230)}
    for name in names:
        await redis_client.hset(name, "made_at", 1)
    for n in range(300):
        await redis_client.zadd(BOX_LID(n), {"lid": 1})
    found: list[str] = []
    cursor, pages = "", 0
    while True:
        page = await key_browser.list_keys("box", cursor)
        assert len(page.keys) < 200, "the page is too large"
        found += [summary.name for summary in page.keys]
        pages += 1
        if page.next is None:
            break
        cursor = page.next
    assert set(found) == names
    assert pages > 2
    assert page.total == 530


async def test_the_search_for_a_rare_family_is_bounded(
    key_browser: KeyBrowser, redis_client: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(browser, "MAX_SCANNED_KEYS", 100)
    for n in range(600):
        await redis_client.hset(BOX(n), "made_at", 1)
    page = await key_browser.list_keys("box_lid")
    assert page.keys == []
    assert page.scanned < 600
    assert page.next is not None


async def test_a_key_shows_size_expiry_memory_and_meanings(key_browser: KeyBrowser, redis_client: Any) -> None:
    await redis_client.hset(
        BOX("a"), mapping={"made_at": "1700000000000", "owner": "ana", "key": "1234", "own": "mine"}
    )
    await redis_client.pexpire(BOX("a"), 60_000)
    view = await key_browser.get_key("box", BOX("a"))
    assert (view.summary.kind, view.summary.length) == ("hash", 4)
    assert view.summary.memory > 50
    assert 0 < (view.summary.expires_ms or 0) <= 60_000
    rows = {row.name: row for row in view.rows}
    assert rows["made_at"].at_ms == 1_700_000_000_000
    assert rows["made_at"].meaning == "when, Unix milliseconds"
    for name in ("owner", "key", "own"):
        assert rows[name].hidden
        assert rows[name].value == ""
    await redis_client.zadd(BOX_LID("a"), {"x": 1.5, "y": 1_700_000_000.25})
    rows = {row.name: row for row in (await key_browser.get_key("box_lid", BOX_LID("a"))).rows}
    assert (rows["y"].value, rows["y"].at_ms) == ("1700000000.25", 1_700_000_000_250)


async def test_secrets_are_never_shown(key_browser: KeyBrowser, redis_client: Any) -> None:
    await redis_client.set(TICKET("0123456789ab"), "x")
    await redis_client.sadd(SAFE(), "gold")
    (ticket,) = (await key_browser.list_keys("ticket")).keys
    assert (ticket.name, ticket.readable) == (TICKET("0123…"), False)
    (safe,) = (await key_browser.list_keys("safe")).keys
    assert not safe.readable
    for family, name in (("ticket", TICKET("0123456789ab")), ("safe", SAFE()), ("box", BOX("none")), ("box", SAFE())):
        with pytest.raises(NotFound):
            await key_browser.get_key(family, name)


async def test_a_key_of_the_wrong_type_and_a_bad_cursor_are_refused(key_browser: KeyBrowser, redis_client: Any) -> None:
    await redis_client.set(BOX("a"), "a string")
    with pytest.raises(Invalid, match="should be a hash"):
        await key_browser.get_key("box", BOX("a"))
    for cursor in ("x", "9-0", "0", "0-0x", "-1-0"):
        with pytest.raises(Invalid):
            await key_browser.list_keys("box", cursor)


def test_globs_escape_special_characters() -> None:
    assert glob(BOX_LID, Layout.PLAIN) == r"box:*:lid\[\*\]"
    assert glob(BOX_LID, Layout.BRACES) == r"box:{*}:lid\[\*\]"
    assert unix_ms("12.5", "a number") is None
    assert unix_ms("x", "Unix seconds") is None


async def test_a_key_is_found_by_its_documented_name_in_both_layouts(
    key_browser: KeyBrowser, redis_client: Any
) -> None:
    await redis_client.hset(BOX("red"), "made_at", 1)
    await redis_client.sadd(SAFE(), "gold")
    for name in ("box:red", BOX("red")):
        assert await key_browser.find_key(name) == ("box", BOX("red"))
    for name, family in (("box:blue", "box"), ("safe", "safe")):
        assert await key_browser.find_key(name) == (family, "")
    for name in ("unknown:red", ""):
        assert await key_browser.find_key(name) is None
