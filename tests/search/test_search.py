"""The search as users see it: every kind, the order, and what a viewer may not find."""

from __future__ import annotations

from collections import Counter

import httpx
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from plaza.core.paging import Snapshots
from plaza.search import service
from plaza.search.corrections import Corrections
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


async def test_the_end_of_a_page_does_not_tell_of_hidden_authors(community: SearchCommunity) -> None:
    await community.sync(
        "users", *({"username": name} for name in ("ana", "ben")), {"username": "root", "role": "admin"}
    )
    post = {"content": "lakes", "created_at": 1_700_000_000_000}  # alike, so they rank by their ids
    posts = [{**post, "id": post_id(n), "username": name} for n, name in enumerate(("ana", "ben"))]
    await community.sync("posts", *posts)
    await community.index()
    page = await community.request("GET", "/search?q=lakes&type=posts&limit=1")
    assert page["pagination"]["next_cursor"]
    await community.request("PUT", "/users/ben/suspension", "root")
    page = await community.request("GET", "/search?q=lakes&type=posts&limit=1")
    assert page["pagination"] == {"limit": 1, "count": 1, "next_cursor": None}


async def test_later_pages_leave_out_who_is_hidden_meanwhile(community: SearchCommunity) -> None:
    await community.sync(
        "users", *({"username": name} for name in ("ana", "ben")), {"username": "root", "role": "admin"}
    )
    for n in range(9):
        article = {"title": "Lakes", "link": f"https://lakes.example/{n}"}
        await community.request("POST", "/articles", "ben" if n % 2 else "ana", article, 201)
    await community.index()
    more, authors = "", list[list[str]]()
    for number in range(4):  # the first stores nothing, the second a snapshot, which the others read
        if number == 2:
            await community.request("PUT", "/users/ben/suspension", "root")
        page = await community.request("GET", f"/search?q=lakes&type=articles&limit=2{more}")
        authors.append([hit["author"] for hit in page["articles"]])
        more = f"&cursor={page['pagination']['next_cursor']}"
    assert [set(each) for each in authors] == [{"ana", "ben"}, {"ana", "ben"}, {"ana"}, {"ana"}]


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
    for nothing in ("%23", "%E2%80%AE"):  # a character that names are compared without
        assert await garden_community.request("GET", f"/search/suggest?q={nothing}") == {"users": [], "tags": []}
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
    corrections = Corrections(SearchIndex(garden_community.plaza.core.sql).names)
    assert await corrections.suggest('-"my hanah" -“my hanah”') == []
    assert [each.text for each in await corrections.suggest("“my hanah”")] == ["“my hannah”", "“my ana”"]
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
    seen = await community.find_all("word", limit=7)
    assert sorted(seen) == sorted(post_id(i) for i in range(1, 60))


VIEWERS = tuple(f"user{n}" for n in range(5))
DELETED = "user7"
AUTHORS = (*VIEWERS, "user5", "user6", DELETED)
POSTS = {post_id(n): AUTHORS[n % len(AUTHORS)] for n in range(24)}
# A request that hides something: the methods to do and to undo it, the path, and the user who sends it.
Hiding = tuple[str, str, str, str]
BLOCKS = [("POST", "DELETE", f"/users/{b}/block", a) for a in VIEWERS for b in AUTHORS[:-1] if a != b]
BANS = [("PATCH", "DELETE", f"/posts/{id}/ban", "root") for id, author in POSTS.items() if author != DELETED]
SUSPENSIONS = [("PUT", "DELETE", f"/users/{name}/suspension", "root") for name in ("user5", "user6")]


class Orchard:
    """A community in which all write about apples, and what is hidden in it. The index is not told of that."""

    def __init__(self, community: SearchCommunity, articles: dict[str, str], challenges: dict[str, str]) -> None:
        self.community = community
        self.articles, self.challenges = articles, challenges  # the author by id
        self.hidden = set[Hiding]()

    async def hide(self, wanted: set[Hiding]) -> None:
        """Hide what is wanted, and show again what is not."""
        for each in sorted(wanted ^ self.hidden):
            do, undo, path, by = each
            await self.community.request(do if each in wanted else undo, path, by)
        self.hidden = wanted

    def visible(self, viewer: str) -> tuple[set[str], dict[str, str]]:
        """The model: the users and the posts, with their authors, that a viewer may see."""
        hidden = {(path, by) for _, _, path, by in self.hidden}
        blocked = {(by, path.split("/")[2]) for path, by in hidden if path.endswith("/block")}
        users = {
            name
            for name in AUTHORS[:-1]
            if (f"/users/{name}/suspension", "root") not in hidden and not {(viewer, name), (name, viewer)} & blocked
        }
        return users, {id: a for id, a in POSTS.items() if a in users and (f"/posts/{id}/ban", "root") not in hidden}


@pytest.fixture
async def orchard(community: SearchCommunity) -> Orchard:
    await community.sync("users", *({"username": name} for name in AUTHORS), {"username": "root", "role": "admin"})
    posts = [{"id": id, "username": author, "content": f"apple #{author}"} for id, author in POSTS.items()]
    await community.sync("posts", *posts)
    articles: dict[str, str] = {}
    challenges: dict[str, str] = {}
    for name in AUTHORS:
        article = {"title": "An apple", "link": f"https://example.org/{name}"}
        articles[str((await community.request("POST", "/articles", name, article, 201))["id"])] = name
        for is_public in (True, False):
            challenge = {"title": "Apples", "category": 1, "is_public": is_public, "duration": 30}
            made = await community.request("POST", "/challenges", name, challenge, 201)
            challenges |= {str(made["id"]): name} if is_public else {}
    for name in ("Apple", "Apple pie"):
        item = {"name": name, "description": "", "price": "1.00", "qty": 1}
        id = (await community.request("POST", "/shop/items", "root", item, 201))["id"]
    await community.index()
    await community.request("PATCH", f"/shop/items/{id}", "root", {"withdrawn": True})
    await community.request("DELETE", f"/users/{DELETED}", "root")
    return Orchard(community, articles, challenges)


@settings(max_examples=8, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    hidden=st.tuples(*(st.sets(st.sampled_from(each), max_size=4) for each in (BLOCKS, BANS, SUSPENSIONS))),
    viewer=st.sampled_from(["", *VIEWERS]),
    misspelt=st.sampled_from(AUTHORS),
)
async def test_no_user_finds_what_they_may_not_see(
    orchard: Orchard, hidden: tuple[set[Hiding], ...], viewer: str, misspelt: str
) -> None:
    """Blocks, bans, suspensions, a deletion and a withdrawal, against a model that reads everything."""
    community = orchard.community
    await orchard.hide(set[Hiding]().union(*hidden))
    users, posts = orchard.visible(viewer)
    assert sorted(await community.find_all("apple", viewer, limit=5)) == sorted(posts)
    for kind, owners, shown in (
        ("articles", orchard.articles, users),
        ("challenges", orchard.challenges, {*users, DELETED}),  # a challenge outlives its creator's account
    ):
        found = await community.find("apple", viewer, type=kind)
        assert set(found.get(kind, ())) == {id for id, owner in owners.items() if owner in shown}, kind
    assert set((await community.find("user", viewer, type="users")).get("users", ())) == users
    suggested = await community.request("GET", "/search/suggest?q=user", viewer)
    assert {user["id"] for user in suggested["users"]} == users
    assert {tag["id"]: tag["posts"] for tag in suggested["tags"]} == Counter(posts.values())
    best = await community.request("GET", "/search?q=apple", viewer)
    assert {hit["id"] for hit in best["posts"]} <= set(posts)
    assert {hit["author"] for kind in ("articles", "challenges") for hit in best[kind]} <= {*users, ""}
    assert [item["title"] for item in best["items"]] == ["Apple"]
    corrected = await community.request("GET", f"/search?q={misspelt}x", viewer)
    assert corrected.get("did_you_mean") in {*users, None}
