"""Plaza and another service write the same keys at the same time, and nothing is lost."""

from __future__ import annotations

import asyncio
import csv
import io
import random
from collections import Counter
from collections.abc import Callable
from typing import Any

import pytest

from plaza.live.history import AudienceHistory
from plaza.live.recorder import AudienceRecorder
from plaza.sessions.model import new_token
from tests.other_services.articles_service import VOTE_SECONDS, ArticlesService
from tests.other_services.challenges_service import ChallengesService, today
from tests.other_services.interleaving import Slots, interleave
from tests.other_services.live_service import AnalyticsService
from tests.other_services.running import PlazaBesideOthers, assert_unchanged
from tests.other_services.shop_service import ShopService
from tests.other_services.social_service import SocialService

USERS = [f"user{n}" for n in range(6)]


def is_ours(dice: random.Random) -> bool:
    """Whether Plaza runs an operation, or the other service."""
    return dice.random() < 0.5


class SocialTraffic:
    """Users like, bookmark, comment, follow, post and delete through both services. Knows what must be the result."""

    TAGS = ("tea",)

    def __init__(self, beside: PlazaBesideOthers) -> None:
        self.beside = beside
        self.other = SocialService(beside)
        self.slots = Slots()
        self.posts: dict[str, str] = {}
        self.relations: dict[str, set[tuple[str, str]]] = {"like": set(), "bookmark": set(), "follow": set()}
        self.comments: Counter[str] = Counter()

    async def start(self) -> None:
        for n, name in enumerate(USERS):
            await self.other.register(name, "model" if n % 2 else "user")
        for name in USERS[:3]:
            await self._post(random.Random(1), name)

    @property
    def operations(self) -> list[Any]:
        return [self.like, self.like, self.bookmark, self.follow, self.comment, self.post, self.delete]

    async def _send(self, method: str, path: str, username: str, body: Any = None) -> Any:
        answer = await self.beside.send(method, path, username, body)
        assert answer.status_code in (200, 201), f"{method} {path}: {answer.text}"
        return answer.json()

    async def _toggle(self, dice: random.Random, kind: str, name: str, target: str, path: str) -> None:
        async with self.slots.take((kind, name, target), target) as is_open:
            if not is_open:
                return
            pairs = self.relations[kind]
            on = (name, target) not in pairs
            if is_ours(dice):
                await self._send("POST" if on else "DELETE", path, name)
            else:
                undo = {"like": "unlike", "bookmark": "unbookmark", "follow": "unfollow"}
                args = () if kind == "follow" else (list(self.TAGS),)
                await getattr(self.other, kind if on else undo[kind])(name, target, *args)
            (pairs.add if on else pairs.discard)((name, target))

    async def like(self, dice: random.Random) -> None:
        id = dice.choice([*self.posts])
        await self._toggle(dice, "like", dice.choice(USERS), id, f"/posts/{id}/like")

    async def bookmark(self, dice: random.Random) -> None:
        id = dice.choice([*self.posts])
        await self._toggle(dice, "bookmark", dice.choice(USERS), id, f"/posts/{id}/bookmark")

    async def follow(self, dice: random.Random) -> None:
        name, target = dice.sample(USERS, 2)
        await self._toggle(dice, "follow", name, target, f"/users/{target}/follow")

    async def comment(self, dice: random.Random) -> None:
        id, name = dice.choice([*self.posts]), dice.choice(USERS)
        async with self.slots.take(("comment", dice.random()), id) as is_open:
            if is_open and is_ours(dice):
                await self._send("POST", f"/posts/{id}/comments", name, {"content": "Indeed"})
            elif is_open:
                await self.other.comment(name, id, "Indeed", list(self.TAGS))
            self.comments[id] += is_open

    async def post(self, dice: random.Random) -> None:
        if len(self.posts) < 12:
            await self._post(dice, dice.choice(USERS))

    async def _post(self, dice: random.Random, name: str) -> None:
        if is_ours(dice):
            id = (await self._send("POST", "/posts", name, {"content": "Hello #tea"}))["id"]
        else:
            id = await self.other.create_post(name, "Hello #tea", list(self.TAGS))
        self.posts[id] = name

    async def delete(self, dice: random.Random) -> None:
        if len(self.posts) < 6:
            return
        id = dice.choice([*self.posts])
        author = self.posts.pop(id)
        await self.slots.close(id)
        if is_ours(dice):
            await self._send("DELETE", f"/posts/{id}", author)
        else:
            for name in USERS:  # the document leaves the bookmarks of a deleted post; they lead nowhere
                await self.beside.client.zrem(f"user:{self.beside.owned(name)}:bookmarked", id)
            await self.other.delete_post(id, author, list(self.TAGS))
            await self.beside.client.delete(f"post:{self.beside.owned(id)}:comments")
        for pairs in self.relations.values():
            pairs.difference_update([pair for pair in pairs if pair[1] == id])
        del self.comments[id]

    async def assert_nothing_lost(self) -> None:
        client, owned = self.beside.client, self.beside.owned
        assert set(await client.zrange("explore:feed", 0, -1)) == set(self.posts)
        for id, author in self.posts.items():
            key = f"post:{owned(id)}"
            counts = await client.hmget(key, "likesCount", "bookmarksCount", "commentsCount")
            likes = {name for name, post in self.relations["like"] if post == id}
            marks = {name for name, post in self.relations["bookmark"] if post == id}
            assert await client.smembers(f"{key}:likes") == likes
            assert await client.smembers(f"{key}:bookmarks") == marks
            assert await client.llen(f"{key}:comments") == self.comments[id]
            assert counts == [str(len(likes)), str(len(marks)), str(self.comments[id])]
            assert await client.zscore(f"user:{owned(author)}:posts", id) is not None
        for name in USERS:
            key = f"user:{owned(name)}"
            posts = {id for id, author in self.posts.items() if author == name}
            following = {target for user, target in self.relations["follow"] if user == name}
            followers = {user for user, target in self.relations["follow"] if target == name}
            assert set(await client.zrange(f"{key}:posts", 0, -1)) == posts
            assert await client.smembers(f"{key}:following") == following
            assert await client.smembers(f"{key}:followers") == followers
            counts = await client.hmget(key, "postCount", "followingCount", "followerCount")
            assert counts == [str(len(posts)), str(len(following)), str(len(followers))]

    async def assert_shown(self) -> None:
        points: Counter[str] = Counter()
        for id, author in self.posts.items():
            likes = {name for name, post in self.relations["like"] if post == id}
            marks = {name for name, post in self.relations["bookmark"] if post == id}
            for name in USERS:
                shown = await self.beside.get(f"/posts/{id}", name)
                assert (shown["isLiked"], shown["isBookmarked"]) == (name in likes, name in marks)
            page = await self.beside.get(f"/posts/{id}/likes", author)
            assert {user["id"] for user in page["users"]} == likes
            comments = await self.beside.get(f"/posts/{id}/comments?limit=100", author)
            assert comments["pagination"]["count"] == min(100, self.comments[id])
            points[author] += 3 * len(likes) + 4 * len(marks) + 5 * self.comments[id]
        for name in USERS:
            for side in ("following", "followers"):
                page = await self.beside.get(f"/users/{name}/{side}", name)
                pairs = self.relations["follow"]
                expected = (
                    {b for a, b in pairs if a == name} if side == "following" else {a for a, b in pairs if b == name}
                )
                assert {user["id"] for user in page["users"]} == expected
            followed = {target for user, target in self.relations["follow"] if user == name}
            home = await self.beside.get("/feed/following?limit=100", name)
            assert {item["post"]["id"] for item in home["posts"]} == {
                id for id, author in self.posts.items() if author in followed
            }
        top = await self.beside.get("/search/models/top?limit=100", USERS[0])
        assert {user["id"]: user["engagement"] for user in top["users"]} == {name: points[name] for name in USERS[1::2]}


async def test_social_services_interleave_without_a_loss(
    beside: PlazaBesideOthers, audits_without_pauses: Callable[[], None]
) -> None:
    traffic = SocialTraffic(beside)
    await traffic.start()
    assert await interleave(beside, traffic.operations) > 10
    await traffic.assert_nothing_lost()
    audits_without_pauses()
    before = await beside.documented_keys()
    report = await beside.repair()
    assert report.clean, report.left
    await traffic.assert_nothing_lost()
    await traffic.assert_shown()
    assert before.keys() - (await beside.documented_keys()).keys() == set()
    assert (await beside.audit()).clean


class ArticlesTraffic:
    """Users post, vote and fill groups through both services."""

    GROUPS = ("news", "C++")

    def __init__(self, beside: PlazaBesideOthers) -> None:
        self.beside = beside
        self.other = ArticlesService(beside)
        self.slots = Slots()
        self.votes: dict[int, dict[str, int]] = {}
        self.members: set[tuple[str, int]] = set()

    @property
    def operations(self) -> list[Any]:
        return [self.vote, self.vote, self.vote, self.group, self.post]

    async def post(self, dice: random.Random) -> None:
        if len(self.votes) >= 8:
            return
        name, link = dice.choice(USERS), f"https://example.com/{dice.random()}"
        if is_ours(dice):
            answer = await self.beside.send("POST", "/articles", name, {"title": "Title", "link": link})
            id = answer.json()["id"]
        else:
            id = await self.other.post(f"user:{name}", "Title", link)
        assert id not in self.votes
        self.votes[id] = {name: 1}

    async def vote(self, dice: random.Random) -> None:
        id, name, direction = dice.choice([*self.votes]), dice.choice(USERS), dice.choice((1, -1))
        async with self.slots.take(("vote", id, name), id):
            if is_ours(dice):
                body = {"direction": "up" if direction == 1 else "down"}
                answer = await self.beside.send("PUT", f"/articles/{id}/vote", name, body)
                assert answer.status_code == 200, answer.text
            else:
                await self.other.vote(f"user:{name}", id, direction)
            self.votes[id][name] = direction

    async def group(self, dice: random.Random) -> None:
        id, group = dice.choice([*self.votes]), dice.choice(self.GROUPS)
        async with self.slots.take(("group", id, group), id):
            add = (group, id) not in self.members
            if is_ours(dice) and (group == "news" or not add):
                path = f"/articles/{id}/groups/{group.replace('+', '%2B')}"
                answer = await self.beside.http.request("PUT" if add else "DELETE", path, headers=self.beside.api_key)
                assert answer.status_code == 200, answer.text
            else:
                await (self.other.add_to_group if add else self.other.remove_from_group)(id, group)
            (self.members.add if add else self.members.discard)((group, id))

    async def assert_nothing_lost(self, *, scores: bool) -> None:
        client, owned = self.beside.client, self.beside.owned
        assert int(await client.get("article:")) == max(self.votes)
        for id, votes in self.votes.items():
            for key, direction in (("upvoted", 1), ("downvoted", -1)):
                expected = {f"user:{name}" for name, vote in votes.items() if vote == direction}
                assert await client.smembers(f"{key}:{owned(id)}") == expected
            time, count = await client.hmget(f"article:{owned(id)}", "time", "votes")
            assert count == str(sum(votes.values()))
            assert await client.zscore("time:", f"article:{id}") == pytest.approx(float(time), abs=1e-3)
            if scores:
                score = float(time) + VOTE_SECONDS * int(count)
                assert await client.zscore("score:", f"article:{id}") == pytest.approx(score, abs=1e-3)
        for group in self.GROUPS:
            members = {f"article:{id}" for name, id in self.members if name == group}
            assert await client.smembers(f"group:{owned(group)}") == members

    async def assert_shown(self) -> None:
        listed = (await self.beside.get("/articles?limit=100"))["articles"]
        assert {article["id"]: article["votes"] for article in listed} == {
            id: sum(votes.values()) for id, votes in self.votes.items()
        }
        for id, votes in self.votes.items():
            shown = await self.beside.get(f"/articles/{id}", USERS[0])
            assert shown["vote"] == {1: "up", -1: "down", None: None}[votes.get(USERS[0])]
            assert shown["groups"] == sorted(group for group, member in self.members if member == id)


async def test_article_services_interleave_without_a_loss(
    beside: PlazaBesideOthers, audits_without_pauses: Callable[[], None]
) -> None:
    traffic = ArticlesTraffic(beside)
    await traffic.post(random.Random(1))
    assert await interleave(beside, traffic.operations) > 10
    # On a cluster `score:` is on another node and is set, so it is right again after the next vote or repair.
    await traffic.assert_nothing_lost(scores=not beside.plaza.core.valkey.clustered)
    audits_without_pauses()
    report = await beside.repair()
    assert report.clean, report.left
    await traffic.assert_nothing_lost(scores=True)
    await traffic.assert_shown()
    assert (await beside.audit()).clean


class ShopTraffic:
    """Customers fill carts, view items, sign in and out, and order, through both shops."""

    def __init__(self, beside: PlazaBesideOthers) -> None:
        self.beside = beside
        self.other = ShopService(beside)
        self.slots = Slots()
        self.items: list[int] = []
        self.carts: dict[str, dict[int, int]] = {}
        self.signed_in: dict[str, str] = {}
        self.ended: set[str] = set()
        self.views: Counter[int] = Counter()
        self.sold: Counter[int] = Counter()

    async def start(self) -> None:
        # Popularity is not halved while views are counted.
        await self.beside.client.set(f"shop:halved:{self.beside.owned('viewed:')}", 10**9)
        for n in range(4):
            new = {"name": f"Item {n}", "description": "", "price": "1.00", "qty": 1_000_000}
            made = await self.beside.http.post("/shop/items", json=new, headers=self.beside.api_key)
            self.items.append(made.json()["id"])
        for n in range(6):
            await self._open(f"customer{n}" if n % 2 else "")

    @property
    def operations(self) -> list[Any]:
        return [self.fill, self.fill, self.fill, self.view, self.order, self.sign_in, self.sign_out]

    async def _send(self, method: str, path: str, token: str, body: Any = None) -> Any:
        answer = await self.beside.http.request(method, path, json=body, headers={"cookie": f"plaza={token}"})
        assert answer.status_code in (200, 201), f"{method} {path}: {answer.status_code} {answer.text}"
        assert "set-cookie" not in answer.headers, "the token is valid"
        return answer.json()

    async def _open(self, user: str) -> str:
        """Open a session of the other shop; a guest's begins with a cart."""
        token = new_token()
        if user:
            await self.other.update_token(token, user)
        else:
            await self.other.add_to_cart(token, self.items[0], 1)
        self.carts[token] = {} if user else {self.items[0]: 1}
        self.signed_in[token] = user
        return token

    async def fill(self, dice: random.Random) -> None:
        token, item, qty = dice.choice([*self.carts]), dice.choice(self.items), dice.randrange(5)
        async with self.slots.take(("cart", token), token) as is_open:
            if not is_open:
                return
            if is_ours(dice):
                await self._send("PUT", f"/shop/cart/items/{item}", token, {"qty": qty})
            else:
                await self.other.add_to_cart(token, item, qty)
            if qty:
                self.carts[token][item] = qty
            else:
                self.carts[token].pop(item, None)

    async def view(self, dice: random.Random) -> None:
        token, item = dice.choice([*self.carts]), dice.choice(self.items)
        async with self.slots.take(("cart", token), token) as is_open:
            if not is_open:
                return
            if is_ours(dice) or not self.signed_in[token]:
                await self._send("GET", f"/shop/items/{item}", token)
            else:
                await self.other.update_token(token, self.signed_in[token], str(item))
            self.views[item] += 1

    async def order(self, dice: random.Random) -> None:
        token = dice.choice([*self.carts])
        async with self.slots.take(("cart", token), token) as is_open:
            if not is_open or not self.carts[token]:
                return
            order = await self._send("POST", "/shop/checkout", token)
            assert {line["id"]: line["qty"] for line in order["items"]} == self.carts[token]
            self.sold.update(self.carts[token])
            self.carts[token] = {}

    async def sign_in(self, dice: random.Random) -> None:
        if len(self.carts) < 10:
            await self._open(f"customer{dice.randrange(10**9)}")

    async def sign_out(self, dice: random.Random) -> None:
        tokens = [token for token, user in self.signed_in.items() if user]
        if len(tokens) < 3:
            return
        token = dice.choice(tokens)
        await self.slots.close(token)
        if self.carts.pop(token, None) is None:
            return  # another task has just done it
        del self.signed_in[token]
        self.ended.add(token)
        if is_ours(dice):
            await self.beside.http.post("/shop/logout", headers={"cookie": f"plaza={token}"})
        else:
            await self.other.clean_session(token)
        shown = await self.beside.http.get("/shop/cart", headers={"cookie": f"plaza={token}"})
        assert "set-cookie" in shown.headers, "the session has ended"

    async def assert_nothing_lost(self) -> None:
        client = self.beside.client
        for token, lines in self.carts.items():
            shown = await self._send("GET", "/shop/cart", token)
            assert {line["id"]: line["qty"] for line in shown["items"]} == lines
        await self.beside.plaza.core.functions.outbox.drain()
        for token, lines in self.carts.items():
            expected = {str(item): str(qty) for item, qty in lines.items()}
            assert await self.other.read_cart(token) == expected
            assert await client.hget("login:", token) == (self.signed_in[token] or None)
        assert await client.hgetall("login:") == {token: user for token, user in self.signed_in.items() if user}
        assert set(self.carts) <= (recent := set(await client.zrange("recent:", 0, -1)))
        assert self.ended.isdisjoint(recent)
        assert {
            int(item): -score for item, score in await client.zrange("viewed:", 0, -1, withscores=True)
        } == self.views
        for item in self.items:
            shown = await self.beside.get(f"/shop/items/{item}")
            self.views[item] += 1
            assert shown["qty"] == 1_000_000 - self.sold[item]


async def test_shops_interleave_without_a_loss(
    beside: PlazaBesideOthers, audits_without_pauses: Callable[[], None]
) -> None:
    traffic = ShopTraffic(beside)
    await traffic.start()
    assert await interleave(beside, traffic.operations) > 10
    await traffic.assert_nothing_lost()
    audits_without_pauses()
    report = await beside.repair()
    assert report.clean, report.left
    await traffic.assert_nothing_lost()
    assert (await beside.audit()).clean


class LiveTraffic:
    """Viewers send heartbeats for several places of an event through both services."""

    COUNTRIES = ("NZ", "FR", "ZZ")

    def __init__(self, beside: PlazaBesideOthers) -> None:
        self.beside = beside
        self.other = AnalyticsService(beside)
        self.slots = Slots()
        self.places: dict[tuple[str, str, str], float] = {}  # when each viewing session began, by viewer and place

    @property
    def operations(self) -> list[Any]:
        return [self.beat, self.beat, self.beat, self.read]

    async def beat(self, dice: random.Random) -> None:
        viewer, session = f"viewer{dice.randrange(12)}", dice.choice(("", "talk", "panel"))
        place = (viewer, session, dice.choice(("web", "tv")))
        async with self.slots.take(viewer):
            if is_ours(dice):
                body = {"location": place[2], **({"session_id": session} if session else {})}
                path = "/analytics/events/launch/heartbeat"
                answer = await self.beside.send("POST", path, viewer, body)
                assert answer.status_code == 200, answer.text
            else:
                now = self.other.now() + 0.25
                details = f"198.51.100.7#crew#{dice.choice(self.COUNTRIES)}"
                start = None if place in self.places else now
                await self.other.beat(
                    "launch", viewer, now, location=place[2], session=session, start=start, details=details
                )
            self.places.setdefault(place, 0.0)

    async def read(self, dice: random.Random) -> None:
        path = dice.choice(("statistics/live", "overview", "viewers/active-count", "sessions/talk/statistics/live"))
        answer = await self.beside.http.get(f"/analytics/events/launch/{path}", headers=self.beside.api_key)
        assert answer.status_code == 200, answer.text

    async def assert_nothing_lost(self) -> None:
        client, owned = self.beside.client, self.beside.owned
        viewers = {viewer for viewer, _, _ in self.places}
        assert set(await client.zrange(f"{owned('launch')}#Event#Heartbeat", 0, -1)) == viewers
        assert await client.smembers(f"{owned('launch')}#EventAttendedUsers") == viewers
        for session in {session for _, session, _ in self.places if session}:
            expected = {viewer for viewer, found, _ in self.places if found == session}
            assert set(await client.zrange(f"{owned(session)}#Session#Heartbeat", 0, -1)) == expected
            assert await client.smembers(f"{owned(session)}#SessionAttendedUsers") == expected
            figures = await self.beside.get(f"/analytics/events/launch/sessions/{session}/viewers/active-count")
            assert figures["count"] == len(expected)
        for session, location in {(session, location) for _, session, location in self.places}:
            here = {viewer for viewer, *found in self.places if found == [session, location]}
            place = f"{owned('launch')}#{session}#{location}" if session else f"{owned('launch')}#{location}"
            assert set(await client.zrange(f"{place}#ViewingSessionStart", 0, -1)) == here
            assert set(await client.zrange(f"{place}#ViewingSessionEnd", 0, -1)) == here

    async def assert_shown(self) -> None:
        core = self.beside.plaza.core
        recorder = AudienceRecorder(core.functions, AudienceHistory(core.sql), core.settings, core.clock)
        await recorder.discover()
        await recorder.record()
        viewers = {viewer for viewer, _, _ in self.places}
        overview = await self.beside.get("/analytics/events/launch/overview")
        assert (overview["active"], overview["attended"], overview["logins"]) == (
            len(viewers),
            len(viewers),
            len(self.places),
        )
        statistics = await self.beside.get("/analytics/events/launch/statistics/live")
        assert statistics["viewerCount"] == sum(statistics["countByViewingCountry"].values()) == len(viewers)
        answer = await self.beside.http.get("/analytics/events/launch/attendance.csv", headers=self.beside.api_key)
        rows = [(row["viewer"], row["session"], row["location"]) for row in csv.DictReader(io.StringIO(answer.text))]
        assert sorted(rows) == sorted(self.places)


async def test_audience_services_interleave_without_a_loss(
    beside: PlazaBesideOthers, audits_without_pauses: Callable[[], None]
) -> None:
    traffic = LiveTraffic(beside)
    assert await interleave(beside, traffic.operations) > 10
    await traffic.assert_nothing_lost()
    audits_without_pauses()
    before = await beside.documented_keys()
    report = await beside.repair()
    assert report.clean, report.left
    assert_unchanged(await beside.documented_keys(), before)
    await traffic.assert_shown()
    assert (await beside.audit()).clean


class ChallengesTraffic:
    """Users take part in challenges through Plaza, and another program inserts and deletes rows with SQL."""

    def __init__(self, beside: PlazaBesideOthers) -> None:
        self.beside = beside
        self.other = ChallengesService(beside)
        self.slots = Slots()
        self.challenges: list[int] = []
        self.posts: dict[int, int] = {}
        self.tracked: set[tuple[int, str, int]] = set()
        self.reactions: dict[tuple[int, str], bool] = {}

    async def start(self) -> None:
        for category in (1, 2, 3):
            id = self.other.challenge(f"Challenge {category}", category)
            self.challenges.append(id)
            for name in USERS:
                self.other.member(id, name)
            self.posts[self.other.post(id, USERS[0], "First.")] = id

    @property
    def operations(self) -> list[Any]:
        return [self.post, self.react, self.react, self.track, self.roll]

    async def _send(self, method: str, path: str, name: str, body: Any = None) -> Any:
        answer = await self.beside.send(method, path, name, body)
        assert answer.status_code in (200, 201), f"{method} {path}: {answer.status_code} {answer.text}"
        return answer.json()

    async def post(self, dice: random.Random) -> None:
        challenge, name = dice.choice(self.challenges), dice.choice(USERS)
        if len(self.posts) > 30:
            return
        if is_ours(dice):
            made = await self._send("POST", f"/challenges/{challenge}/posts", name, {"text": "Done."})
            self.posts[made["id"]] = challenge
        else:
            id = await asyncio.to_thread(self.other.post, challenge, name, "Done.", age=dice.randrange(3))
            self.posts[id] = challenge

    async def react(self, dice: random.Random) -> None:
        post, name = dice.choice([*self.posts]), dice.choice(USERS)
        async with self.slots.take((post, name)):
            on = not self.reactions.get((post, name), False)
            if is_ours(dice):
                await self._send("PUT" if on else "DELETE", f"/challenges/posts/{post}/reaction", name)
            elif on:
                await asyncio.to_thread(self.other.reaction, self.posts[post], post, name)
            else:
                await asyncio.to_thread(self.other.delete, "reaction", post_id=post, username=name)
            self.reactions[post, name] = on

    async def track(self, dice: random.Random) -> None:
        challenge, name = dice.choice(self.challenges), dice.choice(USERS)
        async with self.slots.take(("track", challenge, name)):
            if is_ours(dice):
                if (challenge, name, 0) not in self.tracked:
                    self.tracked.add((challenge, name, 0))
                    await self._send("POST", f"/challenges/{challenge}/track", name, {})
                return
            age = dice.randrange(1, 10)
            if (challenge, name, age) in self.tracked:
                values = {"challenge_id": challenge, "username": name, "day": today() - age}
                await asyncio.to_thread(self.other.delete, "tracking", **values)
                self.tracked.discard((challenge, name, age))
            else:
                await asyncio.to_thread(self.other.tracking, challenge, name, age=age)
                self.tracked.add((challenge, name, age))

    async def roll(self, dice: random.Random) -> None:
        if dice.random() < 0.2:
            answer = await self.beside.http.post("/challenges/roll", headers=self.beside.api_key)
            assert answer.status_code in (200, 409), answer.text

    async def assert_nothing_lost(self) -> None:
        """Compare rows with what was done, and keys with rows."""
        assert {row["id"]: row["challenge_id"] for row in self.other.rows("post")} == self.posts
        rows = self.other.rows("reaction")
        assert {(row["post_id"], row["username"]) for row in rows} == {key for key, on in self.reactions.items() if on}
        tracked = {(row["challenge_id"], row["username"], today() - row["day"]) for row in self.other.rows("tracking")}
        assert tracked == self.tracked
        stored = await self.beside.documented_keys()
        assert stored == self.other.derive()


async def test_challenge_programs_interleave_without_a_loss(
    beside: PlazaBesideOthers, audits_without_pauses: Callable[[], None]
) -> None:
    traffic = ChallengesTraffic(beside)
    await traffic.start()
    assert await interleave(beside, traffic.operations) > 10
    rolled = await beside.http.post("/challenges/roll", headers=beside.api_key)
    assert rolled.status_code == 200, rolled.text
    await traffic.assert_nothing_lost()
    audits_without_pauses()
    report = await beside.repair()
    assert not report.groups, report.groups
    await traffic.assert_nothing_lost()
