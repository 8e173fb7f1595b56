"""The search as users see it: every kind, the order, and what a viewer may not find."""

from __future__ import annotations

import random
from collections import Counter

import httpx
import pytest

from plaza.core.paging import Snapshots
from plaza.search import service
from plaza.search.index import SearchIndex
from plaza.search.model import SearchQuery
from tests.search.conftest import SearchCommunity


def post_id(number: int) -> str:
    return f"00000000-0000-4000-8000-{number:012d}"


@pytest.fixture
async def garden_community(community: SearchCommunity) -> SearchCommunity:
    await community.sync(
        "users",
        {"username": "ana", "display_name": "Ana Silva", "bio": "I grow tomatoes"},
        {"username": "hannah", "display_name": "Hannah"},
        {"username": "ben", "display_name": "Bén Ito"},
        {"username": "root", "role": "admin"},
    )
    await community.sync("follows", *({"follower": name, "following": "hannah"} for name in ("ana", "ben")))
    await community.sync(
        "posts",
        {"id": post_id(1), "username": "ana", "content": "Red tomatoes from my garden #Plants"},
        {"id": post_id(2), "username": "ben", "content": "My garden has red roses #plants #Roses"},
        {"id": post_id(3), "username": "hannah", "content": "東京タワーを見た 한국은"},
    )
    await community.request("POST", "/articles", "ana", {"title": "Garden design", "link": "https://e.org"}, 201)
    challenge = {"title": "Garden month", "category": 1, "is_public": True, "duration": 30}
    await community.request("POST", "/challenges", "ana", challenge, 201)
    private = {**challenge, "title": "Secret garden", "is_public": False}
    await community.request("POST", "/challenges", "ben", private, 201)
    item = {"name": "Garden spade", "description": "Steel", "price": "19.90", "qty": 3}
    await community.request("POST", "/shop/items", "root", item, 201)
    await community.index()
    return community


async def test_the_best_of_every_kind(garden_community: SearchCommunity) -> None:
    found = await garden_community.request("GET", "/search?q=garden")
    assert {hit["id"] for hit in found["posts"]} == {post_id(1), post_id(2)}
    assert [hit["title"] for hit in found["articles"]] == ["Garden design"]
    assert [hit["title"] for hit in found["challenges"]] == ["Garden month"], "the private one is not found"
    assert [(hit["title"], hit["figures"]["price"]) for hit in found["items"]] == [("Garden spade", "19.90")]
    assert found["users"] == []
    assert "pagination" not in found


async def test_the_query_language(garden_community: SearchCommunity) -> None:
    assert await garden_community.find('"red tomatoes"') == {"posts": [post_id(1)]}
    assert await garden_community.find("garden -tomatoes", type="posts") == {"posts": [post_id(2)]}
    assert await garden_community.find("#roses") == {"posts": [post_id(2)]}
    assert await garden_community.find("from:ana", type="posts") == {"posts": [post_id(1)]}
    assert await garden_community.find("タワー") == {"posts": [post_id(3)]}
    assert await garden_community.find("한국") == {"posts": [post_id(3)]}, "a beginning of two syllables, six letters"
    assert await garden_community.find("to", type="posts") == {}, "a beginning of two letters is in too many posts"
    assert await garden_community.find("TOMATO") == {"users": ["ana"], "posts": [post_id(1)]}
    assert await garden_community.find("ben") == {"users": ["ben"]}
    for bad in ("", "q=", f"q={'x' * 101}", "q=a&type=keys", "q=a&limit=0", "q=a&cursor=a", "q=a&offset=1"):
        assert (await garden_community.request("GET", f"/search?{bad}", status=422))["detail"]
    for odd in ('"', "AND", "NOT", "a:b*", "' OR 1=1 --", "\\", "col:x", "()", "-"):
        await garden_community.find(odd)


async def test_users_rank_by_follow_then_prefix_then_followers(garden_community: SearchCommunity) -> None:
    assert (await garden_community.find("an", type="users"))["users"] == ["ana", "hannah"], "who has more followers"
    # More than a page of names that contain it, all of them of few users, and heavier than hannah's.
    many = [{"username": f"an{n}", "display_name": f"An{n} Van Jan Dan Pan"} for n in range(5)]
    await garden_community.sync("users", *many)
    fans = [{"follower": f"an{n}", "following": f"an{m}"} for n in range(5) for m in range(5) if n != m]
    await garden_community.sync("follows", *fans)
    await garden_community.index()
    found = (await garden_community.find("an", type="users"))["users"]
    assert found == [*(f"an{n}" for n in range(5)), "ana", "hannah"]
    for n in range(5):
        await garden_community.request("PUT", f"/users/an{n}/suspension", "root")
    await garden_community.sync("users", {"username": "anton"}, {"username": "andy"})
    await garden_community.sync("follows", {"follower": "ben", "following": "anton"})
    await garden_community.index()
    assert (await garden_community.find("an", type="users"))["users"] == ["anton", "ana", "andy", "hannah"]
    await garden_community.request("POST", "/users/andy/follow", "ana")
    assert (await garden_community.find("an", "ana", type="users"))["users"][0] == "andy"


async def test_a_name_and_followed_users_are_found_however_many_names_begin_alike(
    community: SearchCommunity, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(service, "MAX_CANDIDATES", 3)
    monkeypatch.setattr(service, "MAX_NAMES_READ", 3)
    known = [f"ana{n}" for n in range(5)] + [f"b.{n}{n}" for n in range(5)]
    await community.sync("users", *({"username": name} for name in ("ana", "Anabel", "ben", "b.0", *known)))
    await community.sync("follows", *({"follower": "ben", "following": name} for name in known))
    await community.sync("follows", {"follower": "ana0", "following": "Anabel"})
    await community.sync("follows", *({"follower": "ana", "following": name} for name in known))
    await community.index()
    assert (await community.find("ana", type="users"))["users"][0] == "ana"
    assert (await community.find("ana", "ana0", type="users"))["users"][:2] == ["Anabel", "ana"]
    assert (await community.find("@b.0", type="users"))["users"][0] == "b.0"
    assert (await community.find('"ana"', type="users"))["users"] == ["ana"]
    suggested = await community.request("GET", "/search/suggest?q=ana", "ana0")
    assert [user["id"] for user in suggested["users"]][:2] == ["ana", "Anabel"]


async def test_hidden_authors_do_not_take_the_places_of_others(
    community: SearchCommunity, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(service, "MAX_CANDIDATES", 4)
    monkeypatch.setattr(service, "ENOUGH_EXACT", 2)
    monkeypatch.setattr(service, "MAX_NAMES_READ", 2)
    names = ("ana", "ben", "spam-1", "spam-2", "spamless")
    await community.sync("users", *({"username": name} for name in names), {"username": "root", "role": "admin"})
    authors = ["ana", *["spam-1"] * 5, *["spam-2"] * 5]
    # The newest are candidates. A batch is written concurrently on a cluster, so the order must be given.
    await community.sync(
        "posts",
        *(
            {"id": post_id(i), "username": name, "content": "lakes", "created_at": 1_700_000_000_000 + i}
            for i, name in enumerate(authors)
        ),
    )
    await community.index()
    await community.request("PUT", "/users/spam-1/suspension", "root")
    await community.request("POST", "/users/spam-2/block", "ben")
    suggested = (await community.request("GET", "/search/suggest?q=spam", "ben"))["users"]
    assert [user["id"] for user in suggested] == ["spamless"], "names of the same weight are read by name"
    for query in ("lakes", "lak", "lakes -from:ben"):
        assert await community.find(query, "ben") == {"posts": [post_id(0)]}
        assert await community.find(query, "ben", type="posts") == {"posts": [post_id(0)]}
        assert len((await community.find(query))["posts"]) == 4, "a guest has blocked no user"


async def test_what_a_viewer_may_not_see_is_not_found(garden_community: SearchCommunity) -> None:
    await garden_community.request("POST", "/users/ben/block", "ana")
    assert await garden_community.find("roses", "ana") == {}
    assert await garden_community.find("tomatoes", "ben") == {}
    await garden_community.request("POST", "/users/root/block", "ben")
    assert await garden_community.find("roses", "root") == {"posts": [post_id(2)]}, "an admin must moderate it"
    assert "ben" not in str(await garden_community.request("GET", "/search/suggest?q=be", "ana"))
    assert (await garden_community.request("GET", "/search/suggest?q=%23ros", "ana"))["tags"] == []
    assert (await garden_community.request("GET", "/search/suggest?q=%23ros"))["tags"] == [{"id": "roses", "posts": 1}]
    await garden_community.request("PATCH", f"/posts/{post_id(1)}/ban", "root")
    assert await garden_community.find("tomatoes", type="posts") == {}
    await garden_community.request("PUT", "/users/hannah/suspension", "root")
    assert await garden_community.find("hannah") == {}
    assert await garden_community.find("東京") == {}
    await garden_community.request("DELETE", "/users/hannah/suspension", "root")
    assert await garden_community.find("hannah") == {"users": ["hannah"]}
    await garden_community.request("DELETE", f"/posts/{post_id(2)}", "root")
    assert await garden_community.find("roses") == {}


async def test_a_withdrawn_item_is_gone_at_once(garden_community: SearchCommunity) -> None:
    (item,) = (await garden_community.find("spade"))["items"]
    await garden_community.request("PATCH", f"/shop/items/{item}", "root", {"withdrawn": True})
    assert await garden_community.find("spade") == {}, "while the index still has it"
    await garden_community.index()
    assert await SearchIndex(garden_community.plaza.core.sql).count("items") == 0
    await garden_community.request("PATCH", f"/shop/items/{item}", "root", {"withdrawn": False})
    await garden_community.index()
    assert await garden_community.find("spade") == {"items": [item]}


async def test_suggestions_are_users_and_tags(garden_community: SearchCommunity) -> None:
    found = await garden_community.request("GET", "/search/suggest?q=ro")
    assert [user["id"] for user in found["users"]] == ["root"]
    assert [tag["id"] for tag in found["tags"]] == ["roses"]
    silva = await garden_community.request("GET", "/search/suggest?q=silv")
    assert [user["id"] for user in silva["users"]] == ["ana"], "a word of the display name"
    assert (await garden_community.request("GET", "/search/suggest?q=%40ro"))["tags"] == []
    assert await garden_community.request("GET", "/search/suggest?q=%23") == {"users": [], "tags": []}
    # A user with many names and followers takes one place, not all of them.
    many = " ".join(f"si{first}{second}" for first in "ab" for second in "abcdefghijklmnopq")
    await garden_community.sync("users", {"username": "ben", "display_name": many}, {"username": "simon"})
    await garden_community.sync("follows", {"follower": "hannah", "following": "ben"})
    await garden_community.index()
    si = await garden_community.request("GET", "/search/suggest?q=si")
    assert [user["id"] for user in si["users"]] == ["ben", "ana", "simon"]


async def test_wrong_letters_are_corrected_if_nothing_is_found(garden_community: SearchCommunity) -> None:
    assert (await garden_community.request("GET", "/search?q=hanah"))["did_you_mean"] == "hannah"
    assert (await garden_community.request("GET", "/search?q=%23rosses"))["did_you_mean"] == "#roses"
    assert (await garden_community.request("GET", "/search?q=FROM%3Ahanah"))["did_you_mean"] == "FROM:hannah"
    assert (await garden_community.request("GET", "/search?q=ana%20sliva"))["did_you_mean"] == "ana silva"
    for nothing in ("zzzzzz", "zzzzzz -hanah", "zzzzzz hanah"):
        query = httpx.QueryParams({"q": nothing})
        assert "did_you_mean" not in await garden_community.request("GET", f"/search?{query}"), nothing
    other_kind = await garden_community.request("GET", "/search?q=hanna&type=items")
    assert other_kind == {"items": [], "pagination": {"limit": 20, "count": 0, "next_cursor": None}}, "hannah is found"
    longest = "hanah -" + "z" * 93
    assert (await garden_community.request("GET", f"/search?q={longest[:-1]}"))["did_you_mean"].startswith("hannah")
    shorter = (await garden_community.request("GET", f"/search?q={longest}"))["did_you_mean"]
    assert shorter.startswith("ana "), "with hannah it would have 101 characters"
    await garden_community.request("POST", "/users/hannah/block", "ana")
    assert (await garden_community.request("GET", "/search?q=hanah", "ana"))["did_you_mean"] == "ana"


async def test_names_of_a_domain_that_is_off_correct_nothing(garden_community: SearchCommunity) -> None:
    core = garden_community.plaza.core
    search = service.Search(SearchIndex(core.sql), {}, None, None, Snapshots(core.valkey, core.clock), core.clock)
    assert (await search.search(None, SearchQuery(q="hanah"))).did_you_mean is None


async def test_admins_see_why(garden_community: SearchCommunity) -> None:
    (hit,) = (await garden_community.request("GET", "/search?q=tomatoes&type=posts&explain=true", "root"))["posts"]
    assert set(hit["reasons"]) == {"relevance", "freshness", "engagement"}
    found = await garden_community.request("GET", "/search?q=garden&explain=true", "root")
    reasons = {kind: set(hits[0]["reasons"]) for kind, hits in found.items() if hits}
    plain = {"relevance", "weight"}
    assert reasons.pop("posts") == set(hit["reasons"])
    assert reasons == {"articles": {"score"}, "challenges": plain, "items": plain}
    (hit,) = (await garden_community.request("GET", "/search?q=tomatoes&type=posts&explain=true", "ana"))["posts"]
    assert "reasons" not in hit


async def test_pages_neither_repeat_nor_skip(community: SearchCommunity) -> None:
    await community.sync("users", {"username": "ana"})
    await community.sync(
        "posts", *({"id": post_id(i), "username": "ana", "content": f"word {i}"} for i in range(1, 60))
    )
    await community.index()
    seen: list[str] = []
    cursor = ""
    while True:
        more = f"&cursor={cursor}" if cursor else ""
        page = await community.request("GET", f"/search?q=word&type=posts&limit=7{more}")
        seen += [hit["id"] for hit in page["posts"]]
        cursor = page["pagination"]["next_cursor"]
        if cursor is None:
            break
    assert sorted(seen) == sorted(post_id(i) for i in range(1, 60))


async def test_no_user_finds_what_they_may_not_see(community: SearchCommunity) -> None:
    """A random community with blocks, bans, suspensions and deletions, against a model that reads everything."""
    chance = random.Random(7)
    names = [f"user{i}" for i in range(7)]
    await community.sync("users", *({"username": name} for name in names), {"username": "root", "role": "admin"})
    posts = {post_id(i): chance.choice(names) for i in range(1, 25)}
    await community.sync(
        "posts", *({"id": id, "username": name, "content": f"apple #{name}"} for id, name in posts.items())
    )
    articles: dict[str, str] = {}
    challenges: dict[str, str] = {}
    for name in names:
        article = {"title": "An apple", "link": f"https://example.org/{name}"}
        articles[str((await community.request("POST", "/articles", name, article, 201))["id"])] = name
        for is_public in (True, False):
            challenge = {"title": "Apples", "category": 1, "is_public": is_public, "duration": 30}
            made = await community.request("POST", "/challenges", name, challenge, 201)
            challenges |= {str(made["id"]): name} if is_public else {}
    items = []
    for name in ("Apple", "Apple pie"):
        item = {"name": name, "description": "", "price": "1.00", "qty": 1}
        items.append(str((await community.request("POST", "/shop/items", "root", item, 201))["id"]))
    await community.index()
    blocked: set[tuple[str, str]] = set()
    for _ in range(5):
        a, b = chance.sample(names, 2)
        blocked |= {(a, b), (b, a)}
        await community.request("POST", f"/users/{b}/block", a)
    gone = chance.sample(sorted(posts), 6)
    for id in gone[:4]:
        await community.request("PATCH", f"/posts/{id}/ban", "root")
    for id in gone[4:]:
        await community.request("DELETE", f"/posts/{id}", "root")
    suspended, deleted = names[5:]
    await community.request("PUT", f"/users/{suspended}/suspension", "root")
    await community.request("DELETE", f"/users/{deleted}", "root")
    await community.request("PATCH", f"/shop/items/{items[1]}", "root", {"withdrawn": True})
    for viewer in ["", *names[:5]]:
        seen = {name for name in names if name not in (suspended, deleted) and (viewer, name) not in blocked}
        visible = {id: name for id, name in posts.items() if id not in gone and name in seen}
        found = await community.request("GET", "/search?q=apple&type=posts&limit=100", viewer)
        assert {hit["id"] for hit in found["posts"]} == set(visible)
        assert found["pagination"]["count"] == len(visible)
        for kind, owners, shown in (("articles", articles, seen), ("challenges", challenges, {*seen, deleted})):
            hits = await community.find("apple", viewer, type=kind)
            of_shown = {
                id for id, name in owners.items() if name in shown
            }  # a challenge outlives its creator's account
            assert set(hits.get(kind, ())) == of_shown, kind
        people = await community.find("user", viewer, type="users")
        assert set(people["users"]) == seen
        suggested = await community.request("GET", "/search/suggest?q=user", viewer)
        assert {user["id"] for user in suggested["users"]} == seen
        assert {tag["id"]: tag["posts"] for tag in suggested["tags"]} == Counter(visible.values())
        best = await community.find("apple", viewer)
        assert {id for kind in best for id in best[kind]} <= {*visible, *articles, *challenges, items[0]}
        assert best["items"] == items[:1]
        for name in names:
            corrected = await community.request("GET", f"/search?q={name}x", viewer)
            assert corrected.get("did_you_mean") in {*seen, None}
