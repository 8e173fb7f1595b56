"""Looking at keys in bounded steps, on one server and on a cluster."""

from __future__ import annotations

from typing import Any

import pytest

from plaza.core.errors import Invalid, NotFound
from plaza.core.keyspace import Access, Catalogue, Field, Key, Layout
from plaza.core.valkey import Valkey
from plaza.keyspace import browser
from plaza.keyspace.browser import Keyspace, moment, pattern

BOX = Key(
    "box:<box>",
    "hash",
    "A box.",
    owner="box",
    fields=(
        Field("made_at", "when, Unix milliseconds"),
        Field("owner", "whose", read=Access.SELF),
        Field("key", "opens it", read=Access.NOBODY),
    ),
    read=Access.ADMIN,
)
BOX_LID = Key("box:<box>:lid[*]", "zset", "Lids.", of="lid", score="when, Unix seconds", owner="box", read=Access.ADMIN)
TICKET = Key("ticket:<token>", "string", "Lets one in.", read=Access.ADMIN)
SAFE = Key("safe", "set", "Closed.")
CATALOGUE = Catalogue.of("boxes", globals(), {"box": r"[^{}:]+", "token": "[0-9a-f]{12}"})


@pytest.fixture
def keyspace(valkey: Valkey) -> Keyspace:
    return Keyspace(valkey, [CATALOGUE])


async def test_all_keys_of_a_family_are_found_page_by_page_and_no_others(keyspace: Keyspace, redis_client: Any) -> None:
    names = {BOX(n) for n in range(230)}
    for name in names:
        await redis_client.hset(name, "made_at", 1)
    for n in range(300):
        await redis_client.zadd(BOX_LID(n), {"lid": 1})
    found: list[str] = []
    cursor, pages = "", 0
    while True:
        listing = await keyspace.keys("box", cursor)
        assert len(listing.keys) < 200, "a page is a page"
        found += [glance.name for glance in listing.keys]
        pages += 1
        if listing.next is None:
            break
        cursor = listing.next
    assert set(found) == names
    assert pages > 2
    assert listing.total == 530


async def test_a_rare_family_is_looked_for_in_bounded_steps(
    keyspace: Keyspace, redis_client: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(browser, "LOOKED_AT", 100)
    for n in range(600):
        await redis_client.hset(BOX(n), "made_at", 1)
    listing = await keyspace.keys("box_lid")
    assert listing.keys == []
    assert listing.looked < 600
    assert listing.next is not None


async def test_size_expiry_and_memory_are_told(keyspace: Keyspace, redis_client: Any) -> None:
    await redis_client.hset(
        BOX("a"), mapping={"made_at": "1700000000000", "owner": "ana", "key": "1234", "own": "mine"}
    )
    await redis_client.pexpire(BOX("a"), 60_000)
    look = await keyspace.look("box", BOX("a"))
    assert (look.glance.kind, look.glance.length) == ("hash", 4)
    assert look.glance.memory > 50
    assert 0 < (look.glance.expires_ms or 0) <= 60_000
    rows = {row.name: row for row in look.rows}
    assert rows["made_at"].at_ms == 1_700_000_000_000
    assert rows["made_at"].meaning == "when, Unix milliseconds"
    for name in ("owner", "key", "own"):
        assert rows[name].hidden
        assert rows[name].value == ""
    await redis_client.zadd(BOX_LID("a"), {"x": 1.5, "y": 1_700_000_000.25})
    rows = {row.name: row for row in (await keyspace.look("box_lid", BOX_LID("a"))).rows}
    assert (rows["y"].value, rows["y"].at_ms) == ("1700000000.25", 1_700_000_000_250)


async def test_secrets_stay_secret(keyspace: Keyspace, redis_client: Any) -> None:
    await redis_client.set(TICKET("0123456789ab"), "x")
    await redis_client.sadd(SAFE(), "gold")
    (ticket,) = (await keyspace.keys("ticket")).keys
    assert (ticket.name, ticket.opens) == (TICKET("0123…"), False)
    (safe,) = (await keyspace.keys("safe")).keys
    assert not safe.opens
    for family, name in (("ticket", TICKET("0123456789ab")), ("safe", SAFE()), ("box", BOX("none")), ("box", SAFE())):
        with pytest.raises(NotFound):
            await keyspace.look(family, name)


async def test_a_key_of_another_type_is_seen_as_such(keyspace: Keyspace, redis_client: Any) -> None:
    await redis_client.set(BOX("a"), "a string")
    with pytest.raises(Invalid, match="should be a hash"):
        await keyspace.look("box", BOX("a"))
    for cursor in ("x", "9-0", "0", "0-0x", "-1-0"):
        with pytest.raises(Invalid):
            await keyspace.keys("box", cursor)


def test_a_glob_means_what_the_name_says() -> None:
    assert pattern(BOX_LID, Layout.PLAIN) == r"box:*:lid\[\*\]"
    assert pattern(BOX_LID, Layout.BRACES) == r"box:{*}:lid\[\*\]"
    assert moment("12.5", "a number") is None
    assert moment("x", "Unix seconds") is None
