"""The index follows events: what is written is found soon, what is renamed is found under its new name."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator, Sequence
from functools import partial
from itertools import cycle
from pathlib import Path
from types import SimpleNamespace

import pytest
from sqlalchemy import delete, text, update

from plaza.app import DOMAINS, Plaza
from plaza.articles.keys import ARTICLE
from plaza.challenges.tables import CHALLENGE
from plaza.core import event_progress, search_source
from plaza.core.domain_selection import selected_domains
from plaza.core.event_progress import EventProgress
from plaza.core.invariants import NOT_COMPARED
from plaza.core.search_source import SearchDocument
from plaza.core.valkey import Valkey
from plaza.keyspace.audit import REPAIR, Audits
from plaza.search import invariants
from plaza.search.index import SearchIndex
from plaza.search.indexer import Indexer
from plaza.search.invariants import SearchInspector
from plaza.search.jobs import GROUP, STREAMS
from plaza.search.lost_rows import LostRows
from plaza.search.rebuild import RESUME_MS, IndexRebuild
from plaza.search.tables import SEARCH_NAME, SEARCH_REBUILD
from plaza.shop.tables import ITEMS
from plaza.social.account_renaming import AccountRenaming
from plaza.social.keys import EXPLORE_FEED, POST, USER, USERS_REGULAR
from tests.communities import CommunityClient, plaza_at
from tests.http_servers import client_of
from tests.processes import SimulatedCrash
from tests.search.conftest import SearchCommunity
from tests.servers import Server
from tests.steady_events import create_groups, handle_all, one_event_behind
from tests.waiting import eventually


@pytest.fixture
async def followed(community: SearchCommunity) -> AsyncIterator[SearchCommunity]:
    """A community whose events a worker consumes."""
    async with working(community.plaza):
        yield community


@contextlib.asynccontextmanager
async def working(plaza: Plaza) -> AsyncIterator[None]:
    task = asyncio.create_task(plaza.worker.run())
    yield
    task.cancel()
    await asyncio.wait([task])


async def register(community: SearchCommunity, name: str) -> None:
    await community.request("POST", "/auth/register", body={"username": name, "password": "correct horse"}, status=201)


async def indexed(community: SearchCommunity, key: str) -> bool:
    """Whether the index itself has a post, whatever a viewer may see."""
    return key in await SearchIndex(community.plaza.core.sql).stored("posts", [key])


async def test_what_users_write_is_found_and_follows_changes(followed: SearchCommunity) -> None:
    await register(followed, "ana")
    post = (await followed.request("POST", "/posts", "ana", {"content": "Blue herons #birds"}, 201))["id"]
    article = {"title": "Heron colonies", "link": "https://birds.example"}
    await followed.request("POST", "/articles", "ana", article, 201)

    async def both() -> bool:
        found = await followed.find("heron")
        return found.get("posts") == [post] and len(found.get("articles", [])) == 1

    await eventually(both)
    assert (await followed.find("ana"))["users"] == ["ana"]
    await followed.request("PATCH", f"/posts/{post}", "ana", {"content": "Grey geese"})
    assert await eventually(lambda: followed.find("geese")) == {"posts": [post]}
    assert await followed.find("herons", type="posts") == {}
    await followed.request("PATCH", f"/posts/{post}/ban", "root")

    async def gone() -> bool:
        return not await indexed(followed, post)

    await eventually(gone)
    await followed.request("DELETE", f"/posts/{post}/ban", "root")
    assert await eventually(lambda: followed.find("geese")) == {"posts": [post]}
    await followed.request("DELETE", f"/posts/{post}", "ana")
    await eventually(gone)


async def test_a_renamed_user_is_found_with_all_posts(followed: SearchCommunity) -> None:
    await register(followed, "ana")
    post = (await followed.request("POST", "/posts", "ana", {"content": "A quiet lake"}, 201))["id"]
    await eventually(lambda: followed.find("from:ana lake"))
    await followed.plaza.get(AccountRenaming).rename("ana", "anouk")
    assert await eventually(lambda: followed.find("from:anouk lake")) == {"posts": [post]}
    assert await followed.find("from:ana lake") == {}
    assert (await eventually(lambda: followed.find("anouk")))["users"] == ["anouk"]


async def test_a_rebuild_skips_nothing_if_older_objects_are_deleted_meanwhile(
    valkey: Valkey, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(search_source, "SCAN_BATCH", 2)
    key, members = EXPLORE_FEED(), "abcdefgh"
    await valkey.call("ZADD", key, *(part for score, member in enumerate(members) for part in (score, member)))
    seen: list[str] = []
    async for batch in search_source.keys_in_sorted_set(valkey, key, ""):
        seen += batch
        if batch == ["c", "d"]:
            await valkey.call("ZREM", key, "a", "d")
    assert seen == list(members)


async def test_an_interrupted_rebuild_goes_on_where_it_stopped(
    community: SearchCommunity, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(search_source, "SCAN_BATCH", 2)
    names = [f"user{n}" for n in range(6)]
    roles = {name: "user" if name < "user4" else "model" for name in names} | {"root": "admin"}
    await community.sync("users", *({"username": name, "role": role} for name, role in roles.items()))
    posts = [f"00000000-0000-4000-8000-00000000000{n}" for n in range(6)]
    await community.sync("posts", *({"id": id, "username": "user0", "content": "lake"} for id in posts))
    challenge = {"title": "Lake", "category": 1, "is_public": True, "duration": 7}
    for n in range(4):
        article = {"title": f"Lake {n}", "link": f"https://lake.example/{n}"}
        await community.request("POST", "/articles", "user0", article, 201)
        item = {"name": "Lake", "description": "", "price": "1.00", "qty": 1}
        await community.request("POST", "/shop/items", "root", item, 201)
        await community.request("POST", "/challenges", "user0", challenge, 201)
    rebuild = community.plaza.get(IndexRebuild)
    totals: dict[str, list[int]] = {}

    def crash_after_each_batch(step: str, done: int, total: int) -> None:
        if not step.startswith("check") and total:
            totals.setdefault(step, []).append(total)
            raise SimulatedCrash

    counts: dict[str, int] = {}
    while not counts:
        with contextlib.suppress(SimulatedCrash):
            counts = await rebuild.run_or_resume(crash_after_each_batch)
    few = [4, 2]
    assert totals == {"users": [6, 4, 2], "posts": [6, 4, 2], "articles": few, "challenges": few, "items": few}
    assert counts == {"users": 7, "posts": 6, "articles": 4, "challenges": 4, "items": 4}, "admins are in no registry"
    totals.clear()
    for age_ms in (0, RESUME_MS + 1, 0):
        async with community.plaza.core.sql.begin() as tx:
            await tx.execute(update(SEARCH_REBUILD).values(saved_ms=SEARCH_REBUILD.c.saved_ms - age_ms))
        with contextlib.suppress(SimulatedCrash):
            await rebuild.run_or_resume(crash_after_each_batch)
    assert totals == {"users": [6, 6, 4]}, "after an hour, it begins again"


async def until_caught_up(plaza: Plaza, streams: Sequence[str] = STREAMS) -> None:
    progress = EventProgress(plaza.core.valkey, streams, GROUP)

    async def has_caught_up() -> bool:
        return await progress.has_started() and await progress.has_caught_up()

    await eventually(has_caught_up)


async def test_the_audit_repairs_what_others_changed_of_every_kind_also_beyond_its_sample(
    followed: SearchCommunity, monkeypatch: pytest.MonkeyPatch
) -> None:
    plaza, names = followed.plaza, ("ana", "ben", "cleo", "dora")
    challenge = {"title": "Lake", "category": 1, "is_public": True, "duration": 7}
    item = {"name": "Lake", "description": "", "price": "1.00", "qty": 1}
    posts, articles = [], []
    for name in names:
        await register(followed, name)
        posts.append((await followed.request("POST", "/posts", name, {"content": "Lake"}, 201))["id"])
        article = {"title": "Lake", "link": f"https://lake.example/{name}"}
        articles.append((await followed.request("POST", "/articles", name, article, 201))["id"])
        await followed.request("POST", "/challenges", name, challenge, 201)
        await followed.request("POST", "/shop/items", "root", item, 201)
    await until_caught_up(followed.plaza)

    def interrupt(step: str, done: int, total: int) -> None:
        if step == "items":
            raise SimulatedCrash

    with pytest.raises(SimulatedCrash):
        await plaza.get(IndexRebuild).run_or_resume(interrupt)
    changed = [(USER(name), "bio") for name in names] + [(POST(id), "content") for id in posts]
    for key, field in [*changed, *((ARTICLE(id), "title") for id in articles)]:
        await plaza.core.valkey.call("HSET", key, field, "Wood")
    async with plaza.core.sql.begin() as tx:
        await tx.execute(update(CHALLENGE).values(title="Wood"))
        await tx.execute(update(ITEMS).values(name="Wood"))
    assert await followed.find("wood") == {}
    monkeypatch.setattr(invariants, "SAMPLE", 2)
    one_of_four = SimpleNamespace(random=cycle([1.0, 1.0, 1.0, 0.0]).__next__)
    monkeypatch.setattr(invariants, "random", one_of_four)
    groups = {group.rule: group for group in (await plaza.get(Audits).run(REPAIR)).groups if group.repairable}
    assert 5 <= groups["index"].count <= 6, "one of each kind, and another post if the index has them in another order"
    assert groups["sample"].count == 5
    found = {kind: len(hits) for kind, hits in (await followed.find("wood")).items()}
    assert found == dict.fromkeys(("users", "posts", "articles", "challenges", "items"), 4)
    assert not any(group.family == "search_document" for group in (await plaza.get(Audits).run()).groups)


async def test_the_audit_finds_and_repairs_a_wrong_index(followed: SearchCommunity) -> None:
    await register(followed, "ana")
    post = (await followed.request("POST", "/posts", "ana", {"content": "A quiet lake"}, 201))["id"]
    await eventually(lambda: followed.find("lake"))
    audits = followed.plaza.get(Audits)
    await until_caught_up(followed.plaza)
    assert (await audits.run()).clean
    index = SearchIndex(followed.plaza.core.sql)
    await index.write("posts", {post: None, "no-such-post": SearchDocument(["A quiet wood"])})
    await index.write("users", {"ana": SearchDocument(["another text"])})
    groups = (await audits.run(REPAIR)).groups
    assert [(group.family, group.count) for group in groups] == [("search_document", 3)]
    async with followed.plaza.core.sql.begin() as tx:
        await tx.execute(delete(SEARCH_NAME).where(SEARCH_NAME.c.key == "ana"))
    assert [group.count for group in (await audits.run(REPAIR)).groups] == [1], "no name, so no suggestion"
    assert (await followed.request("GET", "/search/suggest?q=an"))["users"][0]["id"] == "ana"
    is_sqlite = followed.plaza.core.sql.dialect == "sqlite"
    lose = "INSERT INTO search_words(search_words) VALUES('delete-all')" if is_sqlite else "DELETE FROM search_words"
    for repair in (partial(audits.run, REPAIR), followed.index):
        async with followed.plaza.core.sql.begin() as tx:
            await tx.execute(text(lose))
        assert await followed.find("lake") == {}
        await repair()
        assert await followed.find("lake") == {"posts": [post]}
    assert (await audits.run()).clean
    assert await index.stored("posts", ["no-such-post"]) == {}
    valkey = followed.plaza.core.valkey
    await valkey.call("ZADD", USERS_REGULAR(), 1, "odd")
    await valkey.call("SET", USER("odd"), "another service wrote a string")
    await followed.index()
    await valkey.call("SET", EXPLORE_FEED(), "and another one")
    findings = {(group.family, group.rule) for group in (await audits.run()).groups}
    assert {(USER.pattern, "type"), (EXPLORE_FEED.pattern, "type")} <= findings
    assert "search_document" not in {family for family, _ in findings}, "posts are read by their own keys"


async def test_the_audit_waits_for_all_documents_together(
    followed: SearchCommunity, monkeypatch: pytest.MonkeyPatch
) -> None:
    """After a failover many may differ."""
    await register(followed, "ana")
    await until_caught_up(followed.plaza)
    for number in range(4):
        document = SearchDocument(["A quiet wood"])
        await SearchIndex(followed.plaza.core.sql).write("posts", {f"no-such-post-{number}": document})
    pauses, sleep = 0, asyncio.sleep

    async def counted(seconds: float) -> None:
        nonlocal pauses
        pauses += seconds == event_progress.PAUSE_SECONDS
        await sleep(seconds)

    monkeypatch.setattr(invariants, "BATCH", 1)
    monkeypatch.setattr(event_progress, "PAUSE_SECONDS", 0.0625)  # nothing else sleeps so long
    auditor = followed.plaza.get(Audits).auditor
    (inspector,) = [each for each in auditor.inspectors if isinstance(each, SearchInspector)]
    with monkeypatch.context() as patch:
        patch.setattr(asyncio, "sleep", counted)
        assert len([violation async for violation in inspector.inspect()]) == 4
    assert pauses < 4 * (invariants.READS - 1), "those of one document, or some more if an event waits"


async def test_the_audit_compares_the_index_also_if_a_domain_is_off(server: Server, tmp_path: Path) -> None:
    async with plaza_at(server, tmp_path, selected_domains(DOMAINS, ["social", "search"])) as plaza, working(plaza):
        async with client_of(plaza.app) as client:
            await CommunityClient(plaza, client).sync("users", {"username": "ana"})
        await until_caught_up(plaza, ["social"])
        await SearchIndex(plaza.core.sql).write("users", {"ana": None})
        assert [group.family for group in (await plaza.get(Audits).run()).groups] == ["search_document"]


@pytest.fixture
async def wrong_index(community: SearchCommunity) -> SearchInspector:
    """The inspector of an index that lacks a user, and that no worker follows."""
    core, rebuild = community.plaza.core, community.plaza.get(IndexRebuild)
    await community.sync("users", {"username": "ana"})
    await community.index()
    await SearchIndex(core.sql).write("users", {"ana": None})
    return SearchInspector(rebuild._indexer, rebuild, EventProgress(core.valkey, STREAMS, GROUP))


async def differing(inspector: SearchInspector) -> list[tuple[str, str]]:
    return [(violation.rule, violation.member) async for violation in inspector.inspect()]


async def test_the_audit_waits_until_the_index_has_followed_all_events(
    community: SearchCommunity, wrong_index: SearchInspector
) -> None:
    valkey = community.plaza.core.valkey
    assert await differing(wrong_index) == [], "no worker has filled the index yet"
    await create_groups(valkey, STREAMS, GROUP)
    found, _ = await asyncio.gather(differing(wrong_index), handle_all(valkey, STREAMS, GROUP))
    assert found == [("index", "ana")]


async def test_the_audit_compares_the_index_also_if_some_event_always_waits(
    community: SearchCommunity, wrong_index: SearchInspector
) -> None:
    async with one_event_behind(community.plaza.core.valkey, STREAMS, GROUP):
        assert await differing(wrong_index) == [("index", "ana")]


async def test_the_audit_says_if_it_cannot_compare_the_index(
    community: SearchCommunity, wrong_index: SearchInspector, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(event_progress, "MAX_IDLE_SECONDS", 0)
    await create_groups(community.plaza.core.valkey, STREAMS, GROUP)
    assert await differing(wrong_index) == [(NOT_COMPARED, "")]


async def test_likes_comments_and_follows_change_weights_alone(followed: SearchCommunity) -> None:
    for name in ("ana", "bo"):
        await register(followed, name)
    post = (await followed.request("POST", "/posts", "ana", {"content": "A quiet lake"}, 201))["id"]
    lakes = {"title": "Lakes", "link": "https://lake.example"}
    article = await followed.request("POST", "/articles", "ana", lakes, 201)
    index = SearchIndex(followed.plaza.core.sql)

    await until_caught_up(followed.plaza)

    async def weight(kind: str, key: object) -> float:
        stored = await index.stored(kind, [str(key)])
        return float(stored[str(key)].weight)

    async def name_weights() -> set[float]:
        return {name.weight for name in await index.names.by_prefix("users", "ana", 10)}

    score = await weight("articles", article["id"])
    # Another service changed the text without an event: what only changes weights does not read it.
    await followed.plaza.core.valkey.call("HSET", f"post:{post}", "content", "A loud street")
    await followed.request("POST", f"/posts/{post}/like", "bo")
    await followed.request("POST", f"/posts/{post}/comments", "bo", {"content": "Nice"}, 201)
    await followed.request("POST", "/users/ana/follow", "bo")
    await followed.request("PUT", f"/articles/{article['id']}/vote", "bo", {"direction": "up"})

    async def has_all() -> bool:
        weights = [await weight("posts", post), await weight("users", "ana"), await weight("articles", article["id"])]
        return weights == [8.0, 1.0, score + 432] and await name_weights() == {1.0}

    await eventually(has_all)
    assert (await index.stored("posts", [post]))[post].terms.endswith("lake")
    await followed.request("DELETE", f"/posts/{post}/like", "bo")
    await followed.request("DELETE", "/users/ana/follow", "bo")

    async def has_less() -> bool:
        weights = [await weight("posts", post), await weight("users", "ana")]
        return weights == [5.0, 0.0] and await name_weights() == {0.0}

    await eventually(has_less)


async def test_a_like_indexes_a_post_that_the_index_lacks(followed: SearchCommunity) -> None:
    await register(followed, "ana")
    post = (await followed.request("POST", "/posts", "ana", {"content": "A quiet lake"}, 201))["id"]
    await eventually(lambda: followed.find("lake"))
    index = SearchIndex(followed.plaza.core.sql)
    await index.write("posts", {post: None})
    await followed.request("POST", f"/posts/{post}/like", "ana")
    await eventually(lambda: followed.find("lake"))
    assert (await index.stored("posts", [post]))[post].weight == 3.0


class CountedWeights:
    """Weights that another process changes after the first read."""

    weight_events: frozenset[str] = frozenset()

    def __init__(self) -> None:
        self.reads = 0

    async def weights(self, keys: Sequence[str]) -> dict[str, float]:
        self.reads += 1
        return dict.fromkeys(keys, float(min(self.reads, 2)))


async def test_a_weight_that_changes_while_it_is_written_is_written_again(community: SearchCommunity) -> None:
    index, source = SearchIndex(community.plaza.core.sql), CountedWeights()
    await index.write("posts", {"a": SearchDocument(["lake"])})
    await Indexer(index, {}, LostRows(community.plaza.core.sql)).reweigh("posts", source, ["a"])
    assert ((await index.stored("posts", ["a"]))["a"].weight, source.reads) == (2.0, 3)
