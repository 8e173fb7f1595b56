"""A small sample community that uses every feature, created through the services of all five domains."""

from __future__ import annotations

import itertools
from dataclasses import dataclass, field
from typing import Any

from plaza.app import Plaza
from plaza.articles.comments import ArticleComments
from plaza.articles.lists import ArticleLists
from plaza.articles.model import ArticlesQuery, NewArticle, NewArticleComment
from plaza.articles.service import Articles
from plaza.challenges.challenge_deletion import ChallengeDeletion
from plaza.challenges.comments import ChallengeComments
from plaza.challenges.daily_job.runner import DailyJob
from plaza.challenges.invitations import ChallengeInvitations
from plaza.challenges.model import (
    ChallengeEdit,
    ChallengePostEdit,
    NewChallenge,
    NewChallengeComment,
    NewChallengePost,
    NewReminder,
    NewTracking,
)
from plaza.challenges.posts import ChallengePosts
from plaza.challenges.reminders import ChallengeReminders
from plaza.challenges.service import Challenges
from plaza.challenges.tracking import ChallengeTracking
from plaza.core.auth import Actor
from plaza.core.paging import Page
from plaza.core.roles import Role
from plaza.live.heartbeats import LiveService
from plaza.live.model import Heartbeat, LeaveRequest, Viewer
from plaza.sessions.sign_in import SignIn
from plaza.shop.carts import Carts
from plaza.shop.items import Items
from plaza.shop.model import NewItem
from plaza.shop.row_schedules import RowSchedules
from plaza.shop.views import Views
from plaza.social.comments import Comments
from plaza.social.engagements import Engagements
from plaza.social.home_feed import HomeFeed
from plaza.social.inbound_sync import InboundSync
from plaza.social.model import CommentEdit, NewComment, NewPost
from plaza.social.posts import Posts
from plaza.social.relations import Relations

NAMES = ("ana", "ben", "cleo", "dora", "eli")
ROLES: tuple[Role, ...] = ("user", "model", "model", "user", "admin")
ADMIN = Actor("root", "admin")


@dataclass
class SampleCommunity:
    """The ids of what was created."""

    posts: list[str] = field(default_factory=list)
    banned: str = ""
    comments: list[str] = field(default_factory=list)
    reply: str = ""  # to the first comment
    stub: str = ""  # a deleted comment with a reply
    articles: list[int] = field(default_factory=list)
    article_comments: list[str] = field(default_factory=list)  # on the first one; the second replies to the first
    challenges: list[int] = field(default_factory=list)
    challenge_posts: list[int] = field(default_factory=list)
    items: list[int] = field(default_factory=list)
    guest: str = ""
    token: str = ""


async def load(plaza: Plaza) -> SampleCommunity:
    community = SampleCommunity()
    await _social(plaza, community)
    await _articles(plaza, community)
    await _challenges(plaza, community)
    await _live(plaza)
    await _shop(plaza, community)
    await plaza.core.functions.outbox.drain()
    return community


def actor(name: str) -> Actor:
    return Actor(name, ROLES[NAMES.index(name)])


async def _social(plaza: Plaza, community: SampleCommunity) -> None:
    now = plaza.core.clock.now_ms()
    users: list[Any] = [
        {"username": name, "role": role, "display_name": name.title(), "created_at": now - 90_000_000}
        for name, role in zip(NAMES, ROLES, strict=True)
    ]
    hashed = "$argon2id$v=19$m=65536,t=3,p=4$c29tZXNhbHQ$MDEyMzQ1Njc4OTAxMjM0NTY3ODkwMTIzNDU2Nzg5MDE"
    users[0]["password_hash"] = hashed
    for result in await plaza.get(InboundSync).apply("user", users):
        assert result.status == "created", result
    relations, posts = plaza.get(Relations), plaza.get(Posts)
    engagements, comments = plaza.get(Engagements), plaza.get(Comments)
    for one, other in itertools.permutations(NAMES[:4], 2):
        await relations.follow(actor(one), other)
    await relations.block(actor("ana"), "eli")
    await relations.mute(actor("ben"), "cleo")
    for i, name in enumerate((*NAMES[:4], "ben")):
        post = await posts.create(actor(name), NewPost(f"Good morning #plaza #day{i}"))
        community.posts.append(post.id)
    for id, name in itertools.product(community.posts[:3], NAMES[:3]):
        await engagements.like(actor(name), id)
    for name in NAMES[:2]:
        await engagements.bookmark(actor(name), community.posts[1])
        made = await comments.create(actor(name), community.posts[1], NewComment("Indeed"))
        community.comments.append(made.id)
    thread = community.posts[1]
    reply = NewComment("Why?", reply_to=community.comments[0])
    community.reply = (await comments.create(actor("cleo"), thread, reply)).id
    await comments.edit(actor("cleo"), community.reply, CommentEdit("Why so?"))
    community.stub = (await comments.create(actor("ana"), thread, NewComment("No"))).id
    await comments.create(actor("ben"), thread, NewComment("Yes", reply_to=community.stub))
    await comments.delete(actor("ana"), community.stub)
    community.banned = community.posts.pop()
    await engagements.like(actor("dora"), community.banned)
    await posts.ban(ADMIN, community.banned, on=True)
    await plaza.get(HomeFeed).page(actor("ana"), Page())


async def _articles(plaza: Plaza, community: SampleCommunity) -> None:
    articles = plaza.get(Articles)
    for i, name in enumerate(NAMES[:3]):
        new = NewArticle(f"Article {i}", f"https://example.com/{i}", ["news", f"group{i}"])
        made = await articles.post(actor(name), new, f"load-{i}")
        community.articles.append(made.id)
    for id, name in itertools.product(community.articles, NAMES):
        await articles.vote(actor(name), id, "down" if name == "dora" else "up")
    comments, article = plaza.get(ArticleComments), community.articles[0]
    root = await comments.create(actor("ben"), article, NewArticleComment("Why?"))
    reply = await comments.create(actor("cleo"), article, NewArticleComment("So.", root.id))
    community.article_comments = [root.id, reply.id]
    await plaza.get(ArticleLists).list_group(None, "news", ArticlesQuery())


async def _challenges(plaza: Plaza, community: SampleCommunity) -> None:
    challenges, posts = plaza.get(Challenges), plaza.get(ChallengePosts)
    for category in (1, 2):
        made = await challenges.create(actor("ana"), NewChallenge("Run", category, True, 21, "km"), f"load-{category}")
        community.challenges.append(made.id)
        for name in NAMES[:3]:
            await challenges.join(actor(name), made.id)
            await plaza.get(ChallengeTracking).track(actor(name), made.id, NewTracking(amount=2.5))
            post = await posts.post(actor(name), made.id, NewChallengePost("Done."), f"load-{category}-{name}")
            community.challenge_posts.append(post.id)
    await plaza.get(ChallengeReminders).save(actor("ben"), community.challenges[0], NewReminder(18, "Europe/Berlin"))
    await posts.edit(actor(name), community.challenge_posts[-1], ChallengePostEdit("Done, really."))
    comments, last = plaza.get(ChallengeComments), community.challenge_posts[-1]
    first = await comments.create(actor("ana"), last, NewChallengeComment("Well done."), "load-comment")
    await comments.create(actor("ben"), last, NewChallengeComment("Indeed.", first.id), "load-reply")
    await challenges.edit(actor("ana"), community.challenges[-1], ChallengeEdit(title="Run on"))
    private = await challenges.create(actor("ana"), NewChallenge("Knit", 2, False, 21), "load-private")
    await plaza.get(ChallengeInvitations).invite(actor("ana"), private.id, "ben")
    deleted = await challenges.create(actor("ana"), NewChallenge("Swim", 1, True, 21), "load-deleted")
    await plaza.get(ChallengeDeletion).delete(actor("ana"), deleted.id)
    for id in community.challenge_posts[:4]:
        await posts.react(actor("dora"), id)
    await plaza.get(DailyJob).run()


async def _live(plaza: Plaza) -> None:
    live = plaza.get(LiveService)
    for i, name in enumerate(NAMES):
        watcher = Viewer(name, f"203.0.113.{i}", "NZ" if i % 2 else "FR", ("staff",) if i < 2 else ())
        await live.beat(watcher, "E1", Heartbeat("web", "S1" if i < 3 else None))
        await live.beat(watcher, "E1", Heartbeat("phone"))
    await live.leave(Viewer("cleo", "203.0.113.2", "FR"), "E1", LeaveRequest("phone"))


async def _shop(plaza: Plaza, community: SampleCommunity) -> None:
    items, carts, views = plaza.get(Items), plaza.get(Carts), plaza.get(Views)
    for i in range(3):
        item = await items.create(NewItem(f"Tablet {i}", "A tablet.", "19.90", 10), f"load-{i}")
        community.items.append(item.id)
        await plaza.get(RowSchedules).schedule(item.id, 3600)
    guest, _ = await views.view(None, community.items[0])
    community.guest = guest.token
    await carts.put(community.guest, community.items[0], 2)
    visit = await plaza.get(SignIn).admit(None, "ana")
    community.token = visit.token
    await carts.put(community.token, community.items[1], 3)
    await views.view(community.token, community.items[1])
